"""A journal whose end was cut off with what it told of, so that it could be done again: the ledger knows how far it was."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from ablation.plan.lock import lock_plan

from .mini import ablation, mini_tree, write_plan
from .test_again import SCALES


def run_arm(folder: Path, luck: float, arm: str = "E") -> None:
    (folder / "plans" / "luck").write_text(str(luck))
    done = ablation(folder, "run", "--arm", arm)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def once(tmp_path_factory) -> Path:
    """A run whose arm E was trained by a command that is not deterministic, in one session."""
    folder = tmp_path_factory.mktemp("once")
    tree = mini_tree()
    external = {"command": [sys.executable, "-c", SCALES], "each": "arm"}
    tree["arms"] = {"C": tree["arms"]["C"], "E": {"external": external}}
    write_plan(folder, tree)
    lock_plan(folder / "plans" / "mini.yaml")
    run_arm(folder, 0.0)
    return folder


def told(folder: Path, run: str = "runs/mini") -> tuple[list[str], str]:
    """(what the verdict says beside the label, what the audit says)."""
    found = json.loads(ablation(folder, "verdict", "--plan", "plans/mini.yaml", "--run", run, "--json").stdout)
    return found.get("also_run", []), " ".join(ablation(folder, "audit", run).stdout.split())


def cut_back(folder: Path) -> None:
    """Cut the journal off before the first stage of arm E, and remove the arm and what kept the journal's head."""
    path = folder / "runs/mini/journal.jsonl"
    lines = path.read_bytes().splitlines(True)
    first = next(n for n, line in enumerate(lines) if b'"stage_sampled"' in line and b"main/E" in line)
    path.write_bytes(b"".join(lines[:first]))
    shutil.rmtree(folder / "runs/mini/main/E")
    (folder / "runs/mini/verdict.json").unlink(missing_ok=True)


@pytest.mark.slow
def test_an_honest_run_says_nothing(once):
    beside, audit = told(once)
    assert beside == [] and "CUT_BACK" not in audit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mini", "renamed"])
def test_what_was_cut_off_and_done_again_is_told(once, tmp_path, name):
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    cut_back(tmp_path)
    if name != "mini":
        (tmp_path / "runs/mini").rename(tmp_path / "runs" / name)
    (tmp_path / "plans" / "luck").write_text("0.9")
    again = ablation(tmp_path, "run", "--arm", "E", "--run", f"runs/{name}")
    assert again.returncode == 0, again.stderr
    beside, audit = told(tmp_path, f"runs/{name}")
    [line] = beside
    assert line.startswith("The journal was cut back: at ") and "which it does not have now" in line
    assert "CUT_BACK" in audit and ("DIFFERS" in audit or name == "renamed")


@pytest.mark.slow
def test_a_copy_that_goes_on_by_itself_was_not_cut_back(once, tmp_path):
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    shutil.copytree(tmp_path / "runs/mini", tmp_path / "runs/copy")
    done = ablation(tmp_path, "run", "--arm", "C", "--run", "runs/copy")
    assert done.returncode == 0, done.stderr
    run_arm(tmp_path, 0.0, "C")
    for folder in ("runs/mini", "runs/copy"):
        found = json.loads(ablation(tmp_path, "verdict", "--run", folder, "--json").stdout)
        assert not any("cut back" in line for line in found["also_run"])
        assert "DIFFERS" not in ablation(tmp_path, "audit", folder).stdout
