"""Folders from elsewhere that are made to hurt: whatever judges them, nothing of theirs runs on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import AblationError, IntegrityError
from ablation.files import only_plain_files
from ablation.problems.workers import close_workers
from ablation.rollouts.store import stage_info
from ablation.study.evaluate_subject import subjects_there
from ablation.study.state import _figures
from tests.audit.build import make_run
from tests.audit.faults import reseal
from tests.verdict import study as made


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    yield
    close_workers()


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def evaluated(code: str) -> bytes:
    """Problems whose metadata the package would evaluate."""
    lines = [
        {
            "id": name,
            "source": "sums" if i % 2 else "products",
            "prompt": f"{i}?",
            "grader": "reasoning_gym",
            "gold": hex(i),
            "entry": {
                "dataset": ["bitwise_arithmetic", "simple_integration"][i % 2],
                "seed": 1,
                "index": 0,
                "config": {},
                "metadata": {"problem": code, "integrand": code, "variable": "x"},
            },
        }
        for i, name in enumerate(made.PROBLEMS)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@pytest.fixture
def received(tmp_path, monkeypatch):
    """(two complete runs without stored grades, what their problems would make if they were evaluated)."""
    pytest.importorskip("reasoning_gym")
    mark = tmp_path / "pwned"
    monkeypatch.setattr(made, "problems_bytes", lambda: evaluated(f"__import__('os').system('touch {mark}')"))
    locked = made.lock_small(tmp_path / "plans")
    runs = [made.start_run(tmp_path / "runs" / name, locked) for name in ("small", "other")]
    for run in runs:
        made.write_study(run, locked, {("main", "C"), ("replication", "C")})
    monkeypatch.chdir(tmp_path)
    return [run.root for run in runs], mark


def test_problems_check_evaluates_nothing(tmp_path):
    pytest.importorskip("reasoning_gym")
    path, mark = tmp_path / "p.jsonl", tmp_path / "pwned"
    path.write_bytes(evaluated(f"__import__('os').system('touch {mark}')"))
    done = call("problems", "check", path)
    assert done.exit_code == 2 and not mark.exists()
    assert (
        f"{path}: problem `p0`: reasoning-gym does not make this problem of its dataset, seed, index and config again: "
        "entry_differs (grader `reasoning_gym`)"
    ) in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("verdict --run", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("verdict --regrade --run", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("audit", 3, "main/start/sweep: the grader failed on 22 rollouts, for instance p0@low #0"),  # nor are its seeds a run's
        ("audit --regrade", 3, "main/start/sweep: the grader failed on 22 rollouts, for instance p0@low #0"),
        ("report --no-figures", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("compare runs/other", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("status --run", 0, ""),
        ("show main/start/sweep --run", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("show main/start/sweep/p1@low#0 --run", 0, "grader error (entry_differs)"),
    ],
)
def test_judging_a_run_evaluates_nothing(received, command, code, said):
    (run, _), mark = received
    done = call(*command.split(), run)
    text = done.output
    if isinstance(done.exception, AblationError):
        text += " ".join(done.exception.lines())
        assert "`entry_differs`" in text and done.exception.exit_code == code
    else:
        assert done.exit_code == code, text
    assert said in " ".join(text.split()) and not mark.exists()


def test_the_viewer_evaluates_nothing(received, monkeypatch):
    starlette = pytest.importorskip("starlette.testclient")
    from ablation.view.app import create_app
    from ablation.view.library import Library

    (run, _), mark = received
    monkeypatch.setenv("ABLATION_CACHE", str(run.parent / "cache"))
    library = Library(run)
    browser = starlette.TestClient(create_app(library), base_url="http://127.0.0.1:8000")
    library.study("small").index.look(60)
    for page in ("curves", "rules", "rollouts", "rollout?family=main&arm=start&stage=sweep&problem=p1&effort=low&index=0"):
        browser.get(f"/study/small/{page}")
    assert not mark.exists()


@pytest.mark.parametrize("data", [b"[" * 100_000 + b"]" * 100_000, b"null", b"\0", b'"x"'], ids=["deep", "null", "nul", "text"])
def test_a_check_that_is_no_record_is_named(tmp_path, data):
    made_run = make_run(tmp_path)
    path = made_run.run.check_result("main", "N", 4)
    path.write_bytes(data)
    reseal(made_run.run.root)
    assert call("status", "--run", made_run.run.root).exit_code == 0
    with pytest.raises(IntegrityError, match=f"{path}: is not the result of a check"):
        subjects_there(made_run.locked, made_run.run)


BESIDE = {
    "plan show": ("plans/small.deviations.jsonl", ["plan", "show", "plans/small.yaml"]),
    "plan verify": ("plans/small.lock.tsr", ["plan", "verify", "plans/small.yaml"]),
    "plan verify of a signature": ("plans/small.lock.sig", ["plan", "verify", "plans/small.yaml"]),
    "plan check": ("plans/base/config.json", ["plan", "check", "plans/small.yaml"]),
    "plan check of a tokenizer": ("plans/base/tokenizer_config.json", ["plan", "check", "plans/small.yaml"]),
    "problems check": ("received.jsonl", ["problems", "check", "received.jsonl"]),
    "ledger show": ("runs/ledger.jsonl", ["ledger", "show"]),
    "ledger check": ("runs/x/journal.jsonl", ["ledger", "check"]),
    "verdict": ("runs/ledger.jsonl", ["verdict", "--run", "runs/small"]),
    "audit": ("runs/ledger.jsonl", ["audit", "runs/small"]),
    "status": ("runs/ledger.jsonl", ["status", "--run", "runs/small"]),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_pipe_beside_what_is_judged_holds_up_nobody(tmp_path, name):
    at, command = BESIDE[name]
    made_run = make_run(tmp_path)
    path = tmp_path / at
    if path.parent.name == "base":
        path.parent.unlink()
    path.parent.mkdir(exist_ok=True)
    for file in ("plan.yaml", "plan.lock") if "runs/x" in at else ():
        shutil.copy(made_run.run.root / file, path.parent)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    main = [sys.executable, "-m", "ablation", *command]
    done = subprocess.run(main, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert "Traceback" not in done.stderr and done.returncode in (0, 2, 3, 6)
    said = "".join((done.stdout + done.stderr).split())  # a page wraps long paths
    assert path.name in said or name in ("audit", "plan check of a tokenizer")  # to which it is none


@pytest.mark.parametrize("value", [5, True, "x", [5]])
def test_other_runs_that_no_runner_wrote_end_no_audit(tmp_path, value):
    root = make_run(tmp_path).run.root
    reseal(root, lambda events: [events[0], events[0] | {"event": "runner_started", "other_runs": value}, *events[1:]])
    assert call("audit", root).exit_code == 3


@pytest.mark.parametrize(("field", "value"), [("engine", "x"), ("adapter_sha256", [1]), ("update", None), ("sampling", 1)])
def test_settings_of_a_stage_of_another_type_are_named(tmp_path, field, value):
    made_run = make_run(tmp_path)
    folder = made_run.run.sweep("main")
    content = json.loads((folder / "stage.json").read_bytes())
    content["info"][field] = value
    (folder / "stage.json").write_text(json.dumps(content))
    done = call("audit", made_run.run.root)
    assert done.exit_code == 3 and isinstance(done.exception, SystemExit)
    with pytest.raises(IntegrityError, match=f"`{field}` is of the wrong type"):
        stage_info(folder)


@pytest.mark.parametrize("rules", [{"a": None}, [None], [{"value": "x"}], 1])
def test_figures_of_a_check_that_are_none_are_left_out(rules):
    assert _figures({"rules": rules}) == []


@pytest.mark.skipif(not os.path.exists("/proc/kmsg"), reason="this kernel has no such file")
@pytest.mark.parametrize("at", ["/proc/kmsg", "/proc/self/root/proc/kmsg", "a link"])
def test_a_file_of_the_kernel_that_never_ends_is_not_read(tmp_path, at):
    if at == "a link":
        at = tmp_path / at
        at.symlink_to("/proc/kmsg")
    with only_plain_files(), pytest.raises(OSError, match="is a pipe or a device, no file"):
        Path(at).read_bytes()
    assert Path("/proc/self/status").read_text()


@pytest.mark.parametrize("name", ["/proc/kmsg", "../readout/part-000.parquet"])
def test_a_part_that_lies_elsewhere_is_named(tmp_path, name):
    root = make_run(tmp_path).run.root
    marker = root / "main/N/readout/stage.json"
    content = json.loads(marker.read_bytes())
    content["parts"][0]["name"] = name
    marker.write_text(json.dumps(content))
    done = call("audit", root)
    assert done.exit_code == 3 and "names a part that is no file of its folder" in " ".join(done.stdout.split())
