from __future__ import annotations

import os
from pathlib import Path

import pytest

import ablation
from ablation.errors import IntegrityError, UsageError
from ablation.plan.load import load_plan
from ablation.plan.locate import changed_resources, locate, missing_resources, resources_of
from ablation.plan.lock import lock_plan, verify_lock
from ablation.plan.resources import Resource

PLANS = Path(__file__).parents[2] / "plans"
REVISION = "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0"


def test_places(monkeypatch):
    plan = Path("plans/x.yaml")
    monkeypatch.setenv("ABLATION_CACHE", "/cache")
    monkeypatch.setenv("HF_HUB_CACHE", "/hub")
    assert locate(Resource(at="package:m/base", sha256="0" * 64), plan) == Path(ablation.__file__).parent / "assets/m/base"
    assert locate(Resource(at="recipe:smollm2/base"), plan) == Path("/cache/recipes/smollm2/base")
    assert locate(Resource(at=f"hub:a/b@{REVISION}"), plan) == Path(f"/hub/models--a--b/snapshots/{REVISION}")
    assert locate(Resource(at="files/p.jsonl", sha256="0" * 64), plan) == Path("plans/files/p.jsonl")
    monkeypatch.delenv("ABLATION_CACHE")
    monkeypatch.setenv("HOME", "/home/u")
    assert locate(Resource(at="recipe:smollm2/base"), plan) == Path("/home/u/.cache/ablation/recipes/smollm2/base")


def test_every_resource_is_found():
    plan = load_plan(PLANS / "tessera.yaml").plan
    assert list(resources_of(plan)) == [
        "model.base",
        "model.start_adapter",
        "problems.training",
        "verdict.held_out.problems",
        "verdict.never_used.problems",
        "verdict.release.main.problems",
        "verdict.release.agent.states",
        "verdict.release.safety.prompts",
        "extension.selection.problems",
    ]


def test_the_study_plan_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    lines = missing_resources(load_plan(PLANS / "tessera.yaml"))
    assert len(lines) == 9
    assert lines[0].endswith(f"get it with `hf download Qwen/Qwen3.8-27B --revision {REVISION}`")
    assert lines[1].startswith("model.start_adapter: owed: the LoRA weights of Tessera-27B-B-CJK")


def test_a_changed_or_missing_file_is_named(plan_path):
    lock_plan(plan_path)
    locked = verify_lock(plan_path)
    assert changed_resources(locked, locked.lock) == missing_resources(locked) == []
    base = plan_path.with_name("base.bin")
    base.write_bytes(b"x")
    [line] = changed_resources(locked, locked.lock)
    assert "model.base has changed" in line
    base.unlink()
    assert changed_resources(locked, locked.lock) == []  # what is not at hand cannot have changed
    [line] = missing_resources(locked)
    assert line.startswith("model.base: `base.bin` is not at")


def test_a_folder_is_digested_as_a_whole(tmp_path, plan_text):
    import hashlib
    import re

    from tests.plan.conftest import write_plan

    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.txt").write_text("b")
    (folder / "sub" / "a.txt").write_text("a")
    lines = "".join(f"{name}\0{hashlib.sha256(data).hexdigest()}\n" for name, data in (("b.txt", b"b"), ("sub/a.txt", b"a")))
    digest = hashlib.sha256(lines.encode()).hexdigest()
    path = write_plan(tmp_path, re.sub(r"base: \{.*\}", f"base: {{at: model, sha256: {digest}}}", plan_text))
    lock_plan(path)
    (folder / "sub" / "new.txt").write_text("")
    with pytest.raises(IntegrityError, match="model.base has changed"):
        verify_lock(path, resources=True)


def test_a_path_that_no_file_can_have_is_missing(plan_path):
    plan_path.write_text(plan_path.read_text().replace("at: base.bin", f"at: {'x' * 300}"))
    (line,) = missing_resources(load_plan(plan_path))
    assert line.startswith("model.base: `xxx") and line.endswith("put the file there")


def test_a_pipe_or_a_device_is_no_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for at in ("pipe", "/dev/null"):
        with pytest.raises(UsageError, match="is no file and no folder"):
            locate(Resource(at=at, sha256="0" * 64), tmp_path / "plan.yaml")
