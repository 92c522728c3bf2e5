"""An arm that is trained again: another trainer's luck is named beside every label; the same bytes are not."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from ablation.plan.lock import lock_plan

from .mini import ablation, mini_tree, write_plan

SCALES = (
    "import os, shutil; from safetensors.torch import load_file, save_file; "
    "source, out = os.environ['ABLATION_ADAPTER_IN'], os.environ['ABLATION_OUT']; scale = float(open('luck').read()); "
    "save_file({n: w * scale for n, w in load_file(f'{source}/adapter_model.safetensors').items()}, "
    "f'{out}/adapter_model.safetensors'); shutil.copy(f'{source}/adapter_config.json', out)"
)
"""A trainer that is not deterministic: what it makes of the start depends on a file that is no part of the plan."""


def again(folder: Path, luck: float) -> None:
    """Remove all of arm E and have it run anew."""
    (folder / "plans" / "luck").write_text(str(luck))
    shutil.rmtree(folder / "runs/mini/main/E", ignore_errors=True)
    done = ablation(folder, "run", "--arm", "E")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def rolled(tmp_path_factory) -> Path:
    """A run whose arm E was trained three times: 0.9 of the start, 0 of it, and 0.9 again."""
    folder = tmp_path_factory.mktemp("again")
    tree = mini_tree()
    external = {"command": [sys.executable, "-c", SCALES], "each": "arm"}
    tree["arms"] = {"C": tree["arms"]["C"], "E": {"external": external}}
    write_plan(folder, tree)
    lock_plan(folder / "plans" / "mini.yaml")
    again(folder, 0.9)
    assert "redone" not in ablation(folder, "verdict").stdout
    again(folder, 0.9)
    assert "redone" not in ablation(folder, "verdict").stdout  # byte for byte what was there before: nothing was chosen
    again(folder, 0.0)
    return folder


@pytest.mark.slow
def test_every_page_names_what_was_trained_again(rolled):
    events = [json.loads(line) for line in (rolled / "runs/mini/journal.jsonl").read_text().splitlines()]
    trained = [one for one in events if one["event"] == "update_trained"]
    sampled = [one for one in events if one["event"] == "stage_sampled" and one["stage"] == "main/E/readout"]
    assert len(trained) == len(sampled) == 3
    told = json.loads(ablation(rolled, "verdict", "--json").stdout)
    by_name = {one["name"]: one for one in told["redone"]}
    assert by_name.keys() == {"main/E/update-2", "main/E/readout"}
    readout = by_name["main/E/readout"]
    assert (readout["times"], readout["first_sha256"], readout["last_sha256"]) == (
        3,
        sampled[0]["stage_sha256"],
        sampled[2]["stage_sha256"],
    )
    assert (readout["first_time"], readout["last_time"]) == (sampled[0]["time"], sampled[2]["time"])
    assert by_name["main/E/update-2"]["last_sha256"] == trained[2]["audit_sha256"]
    arms = {one["arm"]: one["label"] for one in told["arms"]}
    assert arms["E"].endswith(" (redone)") and told["label"].endswith(" (redone: main/E)")
    for command in (["verdict"], ["plan", "verify", "plans/mini.yaml"], ["status"], ["plan", "review", "plans/mini.yaml"]):
        shown = " ".join(ablation(rolled, *command).stdout.split())
        assert "main/E/readout was sampled or imported 3 times" in shown, command
        assert sampled[0]["time"] in shown and sampled[2]["stage_sha256"][:16] in shown, command
    audit = ablation(rolled, "audit", "runs/mini")
    words = " ".join(audit.stdout.split())
    assert "REDONE main/E/update-2 (audit), 3 times" in words and "REDONE main/E/readout (stage), 3 times" in words
    assert "(redone: main/E)" in words and "DIFFERS" not in words
    report = ablation(rolled, "report", "runs/mini")
    assert report.returncode == 0, report.stderr
    page = (rolled / "runs/mini/report/report.md").read_text()
    assert "(redone)" in page and "main/E/readout was sampled or imported 3 times" in page
