"""Another run of a plan, a run that was removed, and another plan on the same problems: each is named beside the label."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ablation.ledger.ledger import read_ledger
from ablation.plan.lock import lock_plan
from ablation.view.app import create_app
from ablation.view.library import Library

from .mini import ablation, mini_tree, write_plan


def run_arm(folder: Path, *options: str) -> None:
    done = ablation(folder, "run", "--arm", "C", *options)
    assert done.returncode == 0, done.stderr


def words(folder: Path, *arguments: str) -> str:
    return " ".join(ablation(folder, *arguments).stdout.split())


def verdict_of(folder: Path, run: str) -> dict:
    return json.loads(ablation(folder, "verdict", "--run", run, "--json").stdout)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The plan `mini` run as `mini`, removed and run again, and as `second`; then its sibling with other seeds."""
    folder = tmp_path_factory.mktemp("project")
    tree = mini_tree()
    write_plan(folder, tree)
    lock_plan(folder / "plans/mini.yaml")
    run_arm(folder)
    first = verdict_of(folder, "runs/mini")
    assert "one of" not in first["label"] and "other_runs" not in first and "also_run" not in first
    assert ablation(folder, "verdict").returncode == 6  # writes what it says of a run that is not whole
    run_arm(folder, "--run", "runs/second")
    shutil.copytree(folder / "runs/mini", folder / "removed")
    shutil.rmtree(folder / "runs/mini")
    run_arm(folder)
    for family in tree["families"].values():
        family["seed"] += 1
    write_plan(folder, tree | {"name": "sibling"})
    lock_plan(folder / "plans/sibling.yaml")
    run_arm(folder, "--plan", "plans/sibling.yaml")
    return folder


@pytest.mark.slow
def test_each_run_has_a_mark_that_is_older_than_its_rollouts(project):
    ledger = read_ledger(project / "runs/ledger.jsonl")
    assert [(one.study, one.folder) for one in ledger.runs] == [
        ("mini", "mini"),
        ("mini", "second"),
        ("mini", "mini"),
        ("sibling", "sibling"),
    ]
    names = [one.run for one in ledger.runs]
    assert len(set(names)) == 4
    for run in ledger.runs:
        own = [mark for mark in ledger.marks if mark.run == run.run]
        assert len(own) == 4 and all(mark.number > run.number for mark in own)  # a sweep, two updates, a readout
    shown = ablation(project, "ledger", "show").stdout
    assert len(re.findall(r"begun +mini in (mini|second): journal", shown)) == 3
    assert ablation(project, "ledger", "check").returncode == 0


@pytest.mark.slow
def test_a_reviewer_with_the_folder_alone_sees_which_run_it_was(project, tmp_path):
    shutil.copytree(project / "runs/mini", tmp_path / "got" / "mini")
    found = verdict_of(tmp_path, "got/mini")
    assert found["label"].endswith("(one of 3 runs)") and {one["label"].partition(" ")[2] for one in found["arms"]} == {
        "(one of 3 runs)"
    }
    ledger = read_ledger(project / "runs/ledger.jsonl")
    told = [(one["run"], one["folder"], one["began"], one["stages"]) for one in found["other_runs"]]
    assert told == [(one.run, one.folder, one.time, 4) for one in ledger.runs[:2]]
    assert found["also_run"][-1].startswith("Whether the plan was also run after this run began is not known here")
    audit = words(tmp_path, "audit", "got/mini")
    assert "(one of 3 runs)" in audit and audit.count("ALSO_RUN") == 2 and "by the ledger" not in audit
    assert "other runs of the plan beyond those that its journal names" in audit and "DIFFERS" not in audit


@pytest.mark.slow
def test_every_page_names_the_other_runs(project):
    ledger = read_ledger(project / "runs/ledger.jsonl")
    gone = f"Also run as mini: begun {ledger.runs[0].time}, 4 stages were begun in it; its folder is not there now"
    there = f"Also run as second: begun {ledger.runs[1].time}, 4 stages were begun in it; its folder is there"
    same = "The same problems in another plan, sibling ("
    for command in (["verdict"], ["plan", "verify"], ["plan", "review"], ["status"]):
        page = words(project, *command, *(["plans/mini.yaml"] if command[0] == "plan" else ["--plan", "plans/mini.yaml"]))
        for line in (gone, there, same):
            assert line in page, (command, line, page)
    report = ablation(project, "report", "runs/mini")
    assert report.returncode == 0, report.stderr
    page = (project / "runs/mini/report/report.md").read_text()
    assert gone in page and there in page and same in page and "(one of 3 runs)" in page
    compared = words(project, "compare", "runs/mini", "runs/second")
    assert gone in compared and "(one of 3 runs)" in compared and "The runs differ" not in compared
    audit = words(project, "audit", "runs/second")
    assert "by the ledger" in audit and "SAME_PROBLEMS sibling" in audit and "DIFFERS" not in audit
    pages = TestClient(create_app(Library(project / "runs")), base_url="http://127.0.0.1:8412")
    overview = pages.get("/study/mini").text
    assert gone in overview and there in overview and same in overview
    # The first run knew of none when it began; the ledger that is at hand tells of those that came later.
    sibling = words(project, "verdict", "--plan", "plans/sibling.yaml")
    assert "one of" not in sibling and "The same problems in another plan, mini (" in sibling
    assert "sampled 8 of 8" in sibling or "evaluated 8 of 8" in sibling


@pytest.mark.slow
def test_a_copy_that_goes_on_by_itself_is_named_and_a_folder_that_was_renamed_is_not(project, tmp_path):
    shutil.copytree(project, tmp_path, dirs_exist_ok=True)
    (tmp_path / "runs/second").rename(tmp_path / "runs/moved")
    run_arm(tmp_path, "--run", "runs/moved", "--plan", "plans/mini.yaml")
    moved = verdict_of(tmp_path, "runs/moved")
    assert not any("second" in line for line in moved["also_run"])
    shutil.copytree(tmp_path / "runs/moved", tmp_path / "runs/copy")
    run_arm(tmp_path, "--run", "runs/copy", "--plan", "plans/mini.yaml")
    assert any(line.startswith("Also run as moved: ") for line in verdict_of(tmp_path, "runs/copy")["also_run"])
    assert any(line.startswith("Also run as copy: ") for line in verdict_of(tmp_path, "runs/moved")["also_run"])


@pytest.mark.slow
def test_a_ledger_without_the_run_or_with_an_edited_line_is_no_silence(project, tmp_path):
    shutil.copytree(project, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "runs/ledger.jsonl"
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True)[:5]))  # of the first run alone
    audit = words(tmp_path, "audit", "runs/mini")
    assert "has no mark that this run began" in audit
    checked = ablation(tmp_path, "ledger", "check")
    assert checked.returncode == 3 and "began at" in checked.stderr
    path.write_bytes(path.read_bytes().replace(b'"folder": "mini"', b'"folder": "mine"'))
    told = verdict_of(tmp_path, "runs/mini")
    assert told["label"].endswith("(one of 3 runs)") and "ledger.jsonl:1" in told["also_run"][-1]
