from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ablation.cli.verdict import verdict
from ablation.errors import IntegrityError, UsageError
from ablation.files import json_bytes
from ablation.plan.deviations import record_deviation
from ablation.plan.lock import verify_lock
from tests.study.evaluations import make
from tests.verdict.study import lock_small, plan_dict, start_run, tell, write_stage, write_study
from tests.verdict.test_phase2 import compare, write_side

ROOT = Path(__file__).parents[2]
TESSERA = ROOT / "plans" / "tessera.yaml"
MEASURES = ROOT / "tests" / "verdict" / "measures"

app = typer.Typer()
app.command()(verdict)


def call(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def study(tmp_path, monkeypatch):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    monkeypatch.chdir(tmp_path)
    return run


def test_a_run_is_found_judged_and_kept(study):
    result = call()
    kept = json.loads(study.verdict.read_bytes())
    assert "Verdict: REPLICATED  (computed from rollouts)" in result.stdout
    assert f"\nDigest: {kept['plan']['digest']}\n" in result.stdout
    assert kept["labels"] == {"replication": "REPLICATED"}
    assert study.verdict.read_bytes() == json_bytes(kept)
    call("--plan", "plans/small.yaml", "--run", "runs/small")


def test_a_run_folder_alone_is_enough(study, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.move(study.root, moved)
    shutil.rmtree(tmp_path / "plans")
    content = json.loads(call("--run", moved, "--json").stdout)
    assert (content["label"], content["written"], content["exit_code"]) == ("REPLICATED", False, 0)


def test_json_is_one_object_and_says_what_the_tables_say(study):
    result = call("--json")
    content = json.loads(result.stdout)
    assert content["source"] == "rollouts"
    assert [one["label"] for one in content["arms"]] == ["DAMAGED", "STABLE", "STABLE", "DAMAGED", "STABLE"]
    assert content["run"].endswith("runs/small")


@pytest.mark.parametrize(
    ("label", "code", "message"),
    [
        ("REPLICATED", 0, ""),
        ("NOT_REPLICATED", 10, "expected NOT_REPLICATED, found REPLICATED"),
        ("CONFIRMED", 10, "not in this plan"),
    ],
)
def test_expect(study, label, code, message):
    result = call("--expect", label, code=code)
    assert message in result.stderr
    with pytest.raises(UsageError, match=r"there is no label `REPLICTED`; did you mean `REPLICATED`\?"):
        call("--expect", "REPLICTED")


def test_an_unfinished_run_is_exit_6_with_the_command(study):
    shutil.rmtree(study.readout("main", "N"))
    result = call("--json", "--expect", "REPLICATED", code=6)
    content = json.loads(result.stdout)
    assert content["label"] == "INCOMPLETE"
    removed = "main/N: the readout is not there, and the journal tells that it was: it was removed"
    assert content["missing"][0] == {"what": removed, "command": "ablation run --arm N"}
    assert "no verdict (expected REPLICATED): main/N: the readout is not there" in result.stderr
    assert "Next: ablation run --all\n" in result.stderr  # which arm is replicated depends on N
    assert content["next_command"] == "ablation run --all"
    call("--expect", "INCOMPLETE")


def test_a_printed_command_names_the_plan_and_the_folder_that_were_named(study, tmp_path):
    shutil.rmtree(study.readout("main", "X"))
    long = tmp_path / ("a folder with a long name " * 4).strip()
    shutil.copytree(study.root, long)
    assert "\n    ablation run --arm X\n" in call(code=6).stdout
    assert "\n    ablation run --arm X --plan plans/small.yaml\n" in call("--plan", "plans/small.yaml", code=6).stdout
    result = call("--plan", "plans/small.yaml", "--run", long, code=6)
    command = f"ablation run --arm X --plan plans/small.yaml --run '{long}'"
    assert f"\n    {command}\n" in result.stdout  # not wrapped
    assert f"\nNext: {command}\n" in result.stderr


def test_a_folder_of_somebody_else_is_not_finished_by_a_command_of_the_reader(study):
    shutil.rmtree(study.readout("main", "X"))
    result = call("--run", study.root, code=6)
    assert "ablation run" not in result.output
    assert f"Next: whoever made the run `{study.root.name}` has to finish it" in result.stderr
    content = json.loads(call("--run", study.root, "--json", code=6).stdout)
    assert content["next_command"] is None


@pytest.mark.parametrize(
    ("damaged", "label", "contrast"),
    [(set(), "INCONCLUSIVE", "did not appear"), ({("main", "C"), ("replication", "C")}, "REPLICATED", "appeared")],
)
def test_a_label_of_the_plans_own_table_says_what_made_it(tmp_path, monkeypatch, damaged, label, contrast):
    rows = [
        {"label": "INCONCLUSIVE", "when": {"reason": "CONTROL_NOT_DAMAGED"}},
        {
            "label": "NOT_REPLICATED",
            "when": {"any": [{"reason": one} for one in ("NO_STABLE_ARM", "NOT_STABLE_AGAIN", "STOPPED")]},
        },
        {"label": "REPLICATED"},
    ]
    own = plan_dict()["verdict"]
    own["replication"]["table"] = rows
    locked = lock_small(tmp_path / "plans", verdict=own)
    write_study(start_run(tmp_path / "runs" / "small", locked), locked, damaged)
    monkeypatch.chdir(tmp_path)
    page = " ".join(call("--expect", label).stdout.split())
    assert f"in both main and replication) {contrast}. The plan's own table makes that {label}: INCONCLUSIVE if" in page


def test_an_edited_label_is_found_and_evidence_is_left_as_it_is(study):
    call()
    kept = study.verdict.read_bytes()
    study.verdict.write_bytes(kept.replace(b'"REPLICATED"', b'"NOT_REPLICATED"'))
    edited = study.verdict.read_bytes()
    assert edited != kept
    for arguments in ((), ("--run", study.root)):
        result = call(*arguments, code=3)
        assert f'{study.verdict}: /label says "NOT_REPLICATED", and the rollouts give "REPLICATED"; ' in result.stderr
        assert "it was edited" in result.stderr
        assert study.verdict.read_bytes() == edited


def test_an_edited_number_of_a_rule_is_found_though_every_label_is_right(study):
    call()
    content = json.loads(study.verdict.read_bytes())
    value = content["arms"][0]["rules"][0]["value"]
    content["arms"][0]["rules"][0]["value"] = value - 1
    study.verdict.write_bytes(json_bytes(content))
    result = call(code=3)
    assert (
        f"{study.verdict}: /arms/0/rules/0/value says {value - 1}, and the rollouts give {value}: it was edited" in result.stderr
    )
    assert json.loads(study.verdict.read_bytes()) == content


def test_a_deviation_or_an_event_after_the_verdict_is_no_edit_of_it(study):
    call()
    locked = lock_again(study)
    record_deviation(
        verify_lock(Path("plans/small.yaml")), reason="the engine was changed by a slip", seen="results", opens=["engine"]
    )
    note = f"note: {study.verdict} is of an earlier state of the run, so it was not compared with what the rollouts give"
    assert call("--expect", "REPLICATED (deviation 1)").stderr == ""
    assert json.loads(study.verdict.read_bytes())["label"] == "REPLICATED (deviation 1)"
    tell(study, locked, "arm_finished", arm="main/X")
    assert note in call("--run", study.root, code=0).stderr


def test_grades_that_are_asked_for_again_are_no_verdict_of_the_run_and_not_kept(study):
    assert json.loads(call("--regrade", "--json").stdout)["written"] is False
    assert not study.verdict.exists()


def test_a_stage_that_was_taken_out_of_a_record_is_named_as_that(tmp_path):
    record = tmp_path / "record"
    shutil.copytree(ROOT / "runs" / "records" / "smollm2", record)
    shutil.rmtree(record / "replication" / "N" / "readout")
    result = call("--run", record, code=3)
    page = " ".join(result.stdout.split())
    assert "replication/N: the readout is not there, and the journal tells that it was: it was removed" in page
    assert 'verdict.json: /label says "NOT_REPLICATED", and the rollouts give "INCOMPLETE"; ' in result.stderr
    assert "what that rests on is not there now: it was removed" in result.stderr
    (record / "verdict.json").unlink()
    call("--run", record, code=6)


def test_a_pipe_in_a_run_folder_is_refused_and_not_read_for_ever(study):
    study.journal.unlink(missing_ok=True)
    os.mkfifo(study.journal)
    for arguments in ((), ("--run", study.root)):
        with pytest.raises(IntegrityError, match="journal.jsonl: is no file"):
            call(*arguments)


def test_somebody_elses_folder_is_not_written_to(study):
    assert json.loads(call("--run", study.root, "--json").stdout)["written"] is False
    assert not study.verdict.exists()


def test_nothing_run_yet_is_exit_6(study):
    shutil.rmtree(study.root)
    result = call(code=6)
    assert "does not exist, so verdict.json was not written" in result.stderr
    assert not study.root.exists()


def test_a_folder_that_cannot_be_written_is_judged_all_the_same(study, monkeypatch):
    def read_only(*_, **__):  # permissions do not stop everybody who runs tests
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.mkstemp", read_only)
    result = call()
    assert "Verdict: REPLICATED" in result.stdout
    assert "verdict.json was not written" in result.stderr
    assert "Read-only file system" in result.stderr
    assert not study.verdict.exists()
    assert [path.name for path in study.root.iterdir() if path.name.startswith(".partial")] == []


def test_another_plans_run_is_refused(study, tmp_path):
    other = lock_small(tmp_path / "other", question="Another one?")
    with pytest.raises(IntegrityError, match="is the run folder of another plan"):
        call("--plan", other.path, "--run", study.root)


def test_an_edited_copy_of_the_plan_is_refused(study):
    study.plan.write_bytes(study.plan.read_bytes().replace(b'"limit": -3', b'"limit": -9'))
    with pytest.raises(IntegrityError, match="changed after it was locked"):
        call("--run", study.root)


def test_changed_rollouts_are_refused(study):
    part = study.readout("main", "N") / "part-000.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match="was changed after it was sampled"):
        call()


def test_what_is_no_run_folder_is_said(study, tmp_path):
    with pytest.raises(UsageError, match="there is no such run folder"):
        call("--run", tmp_path / "nowhere")
    with pytest.raises(IntegrityError, match="is not a run folder"):
        call("--run", tmp_path / "plans")
    with pytest.raises(UsageError, match="say one of them"):
        call("--run", study.root, "--measures", MEASURES / "study.yaml")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("study.yaml", "NOT_REPLICATED"),
        ("held-out.yaml", "WIN_UNVERIFIED"),
        ("never-used.yaml", "NOT_CONFIRMED"),
        ("release-15.yaml", "NO_RELEASE (undeclared deviation)"),  # the file has no replication
        ("release-8.yaml", "RELEASE (undeclared deviation)"),
    ],
)
def test_the_studys_labels_come_out(name, label):
    result = call("--plan", TESSERA, "--measures", MEASURES / name, "--expect", label)
    assert "reported figures, no rollouts" in result.stdout
    assert f": {label}" in result.stdout
    call("--plan", TESSERA, "--measures", MEASURES / name, "--expect", label.partition(" ")[0])
    content = json.loads(call("--plan", TESSERA, "--measures", MEASURES / name, "--json").stdout)
    assert label in content["labels"].values()
    assert content["source"] == "reported figures, no rollouts"


def test_what_could_be_read_for_ever_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match="cannot be read: it is not a file"):
            call("--plan", TESSERA, "--measures", path)
    with pytest.raises(UsageError, match="No such file"):
        call("--plan", TESSERA, "--measures", tmp_path / "nowhere")
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(10_000_001)
    with pytest.raises(UsageError, match=r"has 10,000,001 bytes; a measures file has at most 10,000,000"):
        call("--plan", TESSERA, "--measures", large)


def test_the_first_attempt_is_printed_in_points():
    result = call("--plan", TESSERA, "--measures", MEASURES / "first-attempt.yaml")
    assert "clean 51 of 108 against 76 of 108, -23 percentage" in result.stdout


def test_a_part_of_the_study_has_no_verdict():
    result = call("--plan", TESSERA, "--measures", MEASURES / "control-main.yaml", code=6)
    assert "replication/C: is not in the file" in result.stderr
    assert "main/C  DAMAGED" in result.stdout


def test_neither_torch_nor_pandas_nor_scipy_is_imported(study):
    write_stage(study, lock_again(study), "main", "X", {"clean": 12})
    code = (
        "import sys, typer\nfrom ablation.cli.verdict import verdict\n"
        "app = typer.Typer()\napp.command()(verdict)\n"
        f"app(['--run', {str(study.root)!r}], standalone_mode=False)\n"
        "found = [name for name in ('torch', 'transformers', 'peft', 'pandas', 'scipy') if name in sys.modules]\n"
        "sys.exit(f'imported: {found}' if found else 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def lock_again(study):
    return verify_lock(study.plan)


def test_a_section_s_label_can_be_expected(tmp_path, monkeypatch):
    run, locked = make(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("--expect", "NO_WIN", code=10)
    compare(run, locked, "held-out")
    call("--expect", "WIN_UNVERIFIED")
    result = call("--expect", "NO_WIN", code=10)
    assert "expected NO_WIN, found WIN_UNVERIFIED" in result.stderr
    write_side(run, locked, "never-used", "N@2", "reference")
    result = call("--expect", "CONFIRMED", code=3)
    assert "never-used/N@2 was sampled although its gate was shut" in result.stderr


def test_what_was_not_allowed_is_exit_3_beside_the_whole_page(tmp_path, monkeypatch):
    run, locked = make(tmp_path, damaged=frozenset())
    monkeypatch.chdir(tmp_path)
    compare(run, locked, "held-out")
    result = call(code=3)
    assert "Held-out N@2: WIN_UNVERIFIED (not allowed)" in result.stdout
    assert "no deviation opened `held-out`: phase 2 needs REPLICATED" in result.stderr
    content = json.loads(call("--json", code=3).stdout)
    assert (content["exit_code"], [one["code"] for one in content["integrity"]]) == (3, ["GATE_WAS_SHUT"])
