"""The commands as a user has them: deviations on labels, proofs on the page of `verify`."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ablation
from ablation.cli.main import app
from ablation.errors import AblationError
from ablation.plan.choose import lock_path
from ablation.study.runlock import exclusive
from tests.plan.proofs import allow, make_key, needs
from tests.verdict.study import lock_small, start_run, tell, write_stage, write_study

DAMAGED = {("main", "C"), ("replication", "C")}
REASON = "X was run in the second family, too."


def call(*arguments):
    """(exit code, stdout, what is said on stderr)"""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, AblationError):
        return int(result.exception.exit_code), result.stdout, "\n".join(result.exception.lines())
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def study(tmp_path, monkeypatch):
    """(plan, run, locked): finished, C damaged in both families, in the working folder's plans/ and runs/."""
    monkeypatch.chdir(tmp_path)
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, DAMAGED)
    return "plans/small.yaml", run, locked


def deviate(plan, *more):
    return call("plan", "deviate", plan, "--reason", REASON, *more)


def test_every_later_label_shows_the_deviation(study):
    plan, run, _ = study
    code, before, _ = call("verdict", "--json")
    assert (code, json.loads(before)["label"]) == (0, "REPLICATED")
    assert deviate(plan, "--seen", "results", "--opens", "replication")[0] == 0
    code, text, _ = call("verdict")
    assert code == 0
    assert "Verdict: REPLICATED (deviation 1)" in text
    assert re.search(r"main/N +STABLE \(deviation 1\)\n", text)
    assert "results seen; opens" in text and REASON in " ".join(text.split())
    after = json.loads(call("verdict", "--json")[1])
    assert (after["label"], after["bare_label"]) == ("REPLICATED (deviation 1)", "REPLICATED")
    assert after["labels"] == {"replication": "REPLICATED (deviation 1)"}
    assert {one["label"] for one in after["arms"]} == {"DAMAGED (deviation 1)", "STABLE (deviation 1)"}
    assert [(one["number"], one["seen"], one["opens"]) for one in after["deviations"]] == [(1, "results", ["replication"])]
    written = json.loads(run.verdict.read_bytes())
    assert (written["label"], written["deviations"][0]["reason"]) == ("REPLICATED (deviation 1)", REASON)
    assert deviate(plan, "--seen", "results")[0] == 0
    assert "Verdict: REPLICATED (deviations 1, 2)" in call("verdict")[1]


def test_the_copy_in_a_run_folder_is_verified_with_its_journal(study, monkeypatch, tmp_path):
    _, run, _ = study
    head = json.loads(call("plan", "verify", "plans/small.yaml", "--json")[1])["journal"]
    code, out, _ = call("plan", "verify", run.plan, "--json")
    assert code == 0
    assert (json.loads(out)["run"], json.loads(out)["journal"]) == (str(run.root), head)
    monkeypatch.chdir(run.root)
    code, out, _ = call("plan", "verify", "plan.yaml")
    assert code == 0 and "chain whole" in out and "nothing has run" not in out
    run.journal.write_bytes(run.journal.read_bytes().replace(b"sampled", b"simpled", 1))
    assert call("plan", "verify", "plan.yaml")[0] == 3


@pytest.mark.parametrize(
    ("label", "code"),
    [
        ("REPLICATED", 0),
        ("REPLICATED (deviation 1)", 0),
        ("REPLICATED (deviation 2)", 10),
        ("NOT_REPLICATED (deviation 1)", 10),
        ("REPLICATE (deviation 1)", 2),
    ],
)
def test_expect_takes_the_label_bare_or_as_it_is_shown(study, label, code):
    deviate(study[0], "--seen", "results")
    assert call("verdict", "--expect", label)[0] == code


def test_a_run_folder_that_is_judged_alone_carries_its_copy(study, tmp_path):
    plan, run, _ = study
    deviate(plan, "--seen", "results")
    for path in (tmp_path / "plans").iterdir():
        path.unlink()
    assert "Verdict: REPLICATED (deviation 1)" in call("verdict", "--run", run.root)[1]


def test_less_than_was_seen_is_refused_with_4_and_nothing_is_written(study, tmp_path):
    for said in ("nothing", "progress"):
        code, _, said_why = deviate(study[0], "--seen", said)
        assert code == 4 and "the journal tells of the readout main/C/readout at 20" in said_why
    assert not (tmp_path / "plans" / "small.deviations.jsonl").exists()


def test_an_amendment_before_anything_was_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    locked = lock_small(tmp_path / "plans")
    assert deviate(locked.path, "--seen", "nothing")[0] == 0
    run = start_run(tmp_path / "runs" / "small", locked)
    write_stage(run, locked, "main", "start")
    assert deviate(locked.path, "--seen", "nothing")[0] == 4
    code, out, _ = call("plan", "deviate", locked.path, "--reason", REASON, "--seen", "progress", "--json")
    assert code == 0 and json.loads(out)["number"] == 2


def test_a_deviation_can_be_written_while_a_runner_is_at_work(study):
    plan, run, _ = study
    with exclusive(run.root):
        code, _, said = deviate(plan, "--seen", "results")
        assert code == 0 and "it takes the deviation up before its next arm" in said
    assert not run.deviations.exists()
    assert "Verdict: REPLICATED (deviation 1)" in call("verdict")[1]  # it counts all the same


def test_a_touched_file_of_deviations_ends_with_3_everywhere(study, tmp_path):
    plan, _, _ = study
    deviate(plan, "--seen", "results")
    path = tmp_path / "plans" / "small.deviations.jsonl"
    path.write_bytes(path.read_bytes().replace(b"second family", b"third family!"))
    for command in (
        ("verdict",),
        ("plan", "verify"),
        ("plan", "show", plan),
        ("plan", "deviate", plan, "--reason", REASON, "--seen", "results"),
    ):
        code, _, said = call(*command)
        assert code == 3 and "small.deviations.jsonl:1: is not a line of a file of deviations as it was written" in said


def test_a_cut_journal_ends_with_3(study):
    _, run, _ = study
    assert call("verdict")[0] == 0
    whole = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(whole[:-1]))
    for command in (("verdict",), ("plan", "verify"), ("journal", "head")):
        code, _, said = call(*command)
        assert code == 3 and "does not tell of the stage replication/N/readout" in said


def test_a_head_that_was_kept_finds_a_cut_that_nothing_else_shows(study):
    _, run, locked = study
    tell(run, locked, "runner_started")
    code, head, _ = call("journal", "head")
    assert code == 0 and re.fullmatch(r"8:[0-9a-f]{64}\n", head)
    assert json.loads(call("journal", "head", "--run", run.root, "--json")[1])["length"] == 8
    assert call("plan", "verify", "--journal-head", head)[0] == 0
    run.journal.write_bytes(b"".join(run.journal.read_bytes().splitlines(keepends=True)[:-1]))
    assert call("plan", "verify")[0] == 0
    code, _, said = call("plan", "verify", "--journal-head", head)
    assert code == 3 and "its tail was cut off" in said
    assert call("plan", "verify", "--journal-head", "8")[0] == 2


def test_show_lists_deviations(study):
    plan, _, _ = study
    assert "Deviations" not in call("plan", "show", plan)[1]
    deviate(plan, "--seen", "results")
    text = call("plan", "show", plan)[1]
    assert "Deviations: every later label carries them" in text and "results seen" in " ".join(text.split())
    assert json.loads(call("plan", "show", plan, "--json")[1])["deviations"][0]["number"] == 1


@needs("ssh-keygen")
@needs("git")
def test_verify_has_a_line_for_each_proof(study, tmp_path):
    plan, run, _ = study
    key = make_key(tmp_path, "key")
    assert call("plan", "sign", plan, "--key", key)[0] == 0
    code, text, _ = call("plan", "verify", "--allowed-signers", allow(tmp_path, "author@example.org", key))
    assert code == 0
    assert "signature: proven: author@example.org signed this lock" in text and "It does not prove when it was signed." in text
    assert "git: not proven: the lock is not in a git repository." in text
    assert "timestamp: not proven: the lock has none" in text
    assert f"journal: {run.root}: 7 events, chain whole, head 7:" in text
    found = json.loads(call("plan", "verify", "--json")[1])
    assert [(one["kind"], one["state"]) for one in found["proofs"]] == [
        ("signature", "not proven"),  # without --allowed-signers
        ("git", "not proven"),
        ("timestamp", "not proven"),
    ]
    assert found["journal"]["length"] == 7 and found["deviations"] == []


@needs("ssh-keygen")
def test_a_lock_made_anew_under_an_old_signature_ends_with_3(study, tmp_path):
    plan, _, locked = study
    assert call("plan", "sign", plan, "--key", make_key(tmp_path, "key"))[0] == 0
    lock_path(locked.path).unlink()
    locked.path.write_text(locked.path.read_text().replace('"limit": -3', '"limit": -9'))
    shutil.rmtree(tmp_path / "runs")  # or the run folder would tell, too
    assert call("plan", "lock", plan)[0] == 0
    code, _, said = call("plan", "verify")
    assert code == 3 and "is not a signature of this lock file" in said


def test_the_same_plan_locked_again_after_the_run_ends_with_3(study):
    plan, _, locked = study
    first = lock_path(locked.path)
    content = json.loads(first.read_bytes())
    first.unlink()
    time.sleep(1.1)  # locks have whole seconds
    assert call("plan", "lock", plan)[0] == 0
    assert json.loads(first.read_bytes())["digest"] == content["digest"]
    for command in (("plan", "verify"), ("verdict",), ("plan", "deviate", plan, "--reason", REASON, "--seen", "results")):
        code, _, said = call(*command)
        assert code == 3 and "the plan was locked again since" in said


def test_a_timestamp_that_cannot_be_had_is_owed(study):
    pytest.importorskip("rfc3161_client", reason="the extra `proofs` is not installed")
    plan, _, _ = study
    code, _, said = call("plan", "timestamp", plan, "--url", "http://127.0.0.1:9/")
    assert code == 6 and "recorded as owed" in said
    assert "timestamp: owed: since 20" in call("plan", "verify")[1]
    assert call("plan", "timestamp", plan)[0] == 2


def test_export_names_what_it_wrote(study, tmp_path):
    plan, _, _ = study
    code, out, _ = call("plan", "export", plan, "--format", "in-toto", "--out", tmp_path / "out", "--json")
    assert (code, json.loads(out)["written"]) == (0, [str(tmp_path / "out" / "small.intoto.json")])
    assert call("plan", "export", plan, "--format", "xml", "--out", tmp_path)[0] == 2


OPEN_THE_RUN = """
from pathlib import Path
from ablation.cli.progress import make_reporter
from ablation.plan.lock import verify_lock
from ablation.study.runner import open_study
with make_reporter() as reporter, open_study(verify_lock(Path("plans/small.yaml")), Path("runs/small"), reporter):
    pass
"""


def test_code_that_was_edited_after_the_freeze_is_named(study, tmp_path):
    """With a copy of the program, whose order of cells is edited: what `plan verify`, `verdict` and an opened run say."""
    copy = tmp_path / "program" / "ablation"
    shutil.copytree(Path(ablation.__file__).parent, copy, ignore=shutil.ignore_patterns("assets", "__pycache__"))
    schedule = copy / "study" / "schedule.py"
    for edit, named in (("", False), ("\n# one more line\n", True)):
        schedule.write_text(schedule.read_text() + edit)
        for arguments in (["-m", "ablation", "plan", "verify"], ["-m", "ablation", "verdict"], ["-c", OPEN_THE_RUN]):
            environment = os.environ | {"PYTHONPATH": str(copy.parent), "NO_COLOR": "1", "COLUMNS": "200"}
            command = [sys.executable, "-P", *arguments]
            result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stderr
            said = "the engine's source differs from the time of locking: study/schedule.py" in result.stderr
            assert said == named, (arguments, result.stderr)
