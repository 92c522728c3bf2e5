"""Comparisons whose stages are there already: nothing is sampled here."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
import typer
from typer.testing import CliRunner

from ablation.cli.grade import grade
from ablation.errors import GateError, IncompleteError, IntegrityError, UsageError
from ablation.files import sha256_file
from ablation.ledger.ledger import ledger_path, read_ledger, write_mark
from ablation.plan.deviations import record_deviation
from ablation.problems.problem import load_problems
from ablation.rollouts.journal_chain import check_journal, read_journal
from ablation.rollouts.marked import unmarked_stages
from ablation.study import evaluate as module
from ablation.study.evaluate import evaluate
from ablation.study.grading import graded_stages, problems_file
from ablation.study.phase_gates import Gates
from ablation.verdict.run import judge_run
from tests.study.test_deviations import Said

from .evaluations import check, compare, make, write_side


def events(run, kind):
    return [event for event in read_journal(run.journal) if event["event"] == kind]


@pytest.fixture
def study(tmp_path):
    run, locked = make(tmp_path)
    assert judge_run(run.root, locked).label == "REPLICATED"
    return run, locked


def test_a_comparison_is_graded_measured_and_kept(study):
    run, locked = study
    write_side(run, locked, "held-out", "N@2", "reference", {"clean": 12, "cut": 2})
    write_side(run, locked, "held-out", "N@2", "subject", {"clean": 15, "loop": 1})
    found, said = compare(run, locked)
    assert said == [] and found.worked and found.hours is not None and found.hours < 0.1
    assert found.record == {
        "set": "held-out",
        "subject": "N@2",
        "reference": "start",
        "reused": None,
        "family": "main",
        "rollouts": 24,
        "per_cell": 2,
        "deviations": [],
        "correct": {"reference": 12, "subject": 16},
        "drift": [],
    }
    path = run.evaluation_result("held-out", "N@2")
    assert json.loads(path.read_bytes()) == found.record
    [event] = events(run, "evaluation_finished")
    assert event["evaluation_sha256"] == sha256_file(path)
    measured = json.loads((run.evaluated("held-out", "N@2") / "measures.json").read_bytes())
    assert (measured["rollouts"], measured["correct"], measured["clean"], measured["looping"]) == (24, 16, 15, 1)
    assert run.set_problems("held-out").read_bytes() == (locked.path.parent / "held-out.jsonl").read_bytes()
    check_journal(run.root, locked.digest)  # it tells of both stages and their grades

    written = len(read_journal(run.journal))
    again, said = compare(run, locked)
    assert not again.worked and again.record == found.record
    assert [event["event"] for event in read_journal(run.journal)[written:]] == ["runner_started"]


def test_a_stage_that_the_journal_does_not_tell_of_is_a_cut(study):
    run, locked = study
    write_side(run, locked, "held-out", "N@2", "reference")
    rows = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(rows[:-1]))
    with pytest.raises(IntegrityError, match="does not tell of the stage evaluations/held-out/N@2/reference"):
        compare(run, locked)


def test_a_reference_that_was_sampled_again_is_compared_with_the_earlier_one(study):
    run, locked = study
    for subject, clean in (("N@2", 12), ("X@2", 2)):
        write_side(run, locked, "held-out", subject, "reference", {"clean": clean})
        write_side(run, locked, "held-out", subject, "subject")
    compare(run, locked)
    found, said = compare(run, locked, subject="X@2")
    [moved] = found.record["drift"]
    assert (moved["against"], moved["change"], moved["flagged"]) == ("N@2", -10, True)
    assert moved["identical"] == 14  # the first two are clean in both, the last twelve wrong in both
    assert said == [
        "held-out: the start, against the one that was sampled for N@2: 2 correct, 12 before (-10) DRIFT; "
        "14 of 24 rollouts of one seed are the same to the last token"
    ]
    assert json.loads(run.evaluation_result("held-out", "N@2").read_bytes())["drift"] == []  # it came first


def test_a_reference_can_be_taken_over_byte_for_byte(study):
    run, locked = study
    write_side(run, locked, "held-out", "N@2", "reference", {"clean": 12})
    write_side(run, locked, "held-out", "N@2", "subject")
    write_side(run, locked, "held-out", "X@2", "subject", {"clean": 9})
    compare(run, locked)
    found, said = compare(run, locked, subject="X@2", reuse="N@2")
    assert said == ["evaluations/held-out/X@2/reference: 24 rollouts, taken over from the comparison of N@2"]
    assert found.record["reused"] == "N@2" and found.record["drift"] == []
    assert found.record["correct"] == {"reference": 12, "subject": 9}
    first, second = (run.evaluated_reference("held-out", subject) for subject in ("N@2", "X@2"))
    names = ["grades.json", "measures.json", "part-000.parquet", "stage.json"]
    assert sorted(path.name for path in second.iterdir()) == names
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    check_journal(run.root, locked.digest)
    ledger = read_ledger(ledger_path(locked.path))
    assert not [line for line in unmarked_stages(ledger, run.root.parent) if "X@2/reference" in line]


def test_what_cannot_be_taken_over(study):
    run, locked = study
    with pytest.raises(IncompleteError, match="there is no whole reference") as caught:
        compare(run, locked, reuse="X@2")
    assert caught.value.hint.startswith("There: none yet. This samples one: ablation evaluate held-out --subject N@2 --plan ")
    assert "--reuse-reference" not in caught.value.hint and events(run, "evaluation_opened") == []
    write_side(run, locked, "held-out", "N@2", "reference")
    with pytest.raises(UsageError, match="N@2/reference: was begun without --reuse-reference"):
        compare(run, locked, reuse="X@2")


def test_models_of_a_comparison_are_sampled_on_one_day(study, monkeypatch):
    run, locked = study
    write_side(run, locked, "held-out", "N@2", "reference")

    class Later(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime.now(UTC) + timedelta(hours=25)

    monkeypatch.setattr(module, "datetime", Later)
    with pytest.raises(GateError, match=r"first rollout was sampled 25\.\d hours ago; .* within 24 hours") as caught:
        compare(run, locked)
    assert caught.value.exit_code == 4 and "--opens same-day --seen results" in caught.value.hint
    record_deviation(locked, reason="The machine was away for a day.", seen="results", opens=["same-day"])
    write_side(run, locked, "held-out", "N@2", "subject")
    _, said = compare(run, locked)
    assert re.fullmatch(r"held-out: goes on 25\.\d hours after the first rollout under deviation 1", said[0]) and len(said) == 1
    [told] = events(run, "same_day_exceeded")
    assert 25 <= told["hours"] < 26 and told["deviation"] == 1


def test_a_deviation_is_in_the_journal_before_anything_is_sampled(tmp_path):
    run, locked = make(tmp_path, damaged=frozenset())
    with pytest.raises(GateError, match="phase 2 needs REPLICATED; the verdict on this run is NOT_REPLICATED") as caught:
        compare(run, locked)
    assert f"`ablation plan deviate {locked.path} --opens held-out --seen results --reason ...`" in caught.value.hint
    assert not run.evaluation_set("held-out").exists()
    record_deviation(locked, reason="We want to see it all the same.", seen="results", opens=["held-out"])
    write_side(run, locked, "held-out", "N@2", "reference")
    write_side(run, locked, "held-out", "N@2", "subject")
    found, said = compare(run, locked)
    assert said == ["held-out: the verdict on this run is NOT_REPLICATED, not REPLICATED; N@2 is sampled under deviation 1"]
    assert found.record["deviations"] == [1]
    assert events(run, "evaluation_opened")[-1]["deviation"] == 1
    assert judge_run(run.root, locked).as_json()["label"] == "NOT_REPLICATED (deviation 1)"


def test_never_used_problems_that_were_used_since_are_refused(study):
    run, locked = study
    record_deviation(locked, reason="The read was not passed.", seen="results", opens=["never-used"])
    for side in ("reference", "subject"):
        write_side(run, locked, "never-used", "N@2", side)
    used = list(load_problems(locked.path.parent / "never-used.jsonl").values())[:2]
    marks = {"study": "other", "stage": "main/C/readout", "use": "evaluated", "problems": used}
    write_mark(ledger_path(locked.path), plan="d" * 64, **marks)
    with pytest.raises(GateError) as caught:
        compare(run, locked, "never-used")
    first, second = caught.value.message.split("\n")
    assert first.startswith("`p0` was evaluated in other, main/C/readout (mark ") and second.startswith("`p1` was evaluated")
    assert caught.value.hint.startswith("2 of 6 problems are not new any more")


def test_marks_of_the_comparison_itself_do_not_count_and_those_of_another_one_do(study):
    run, locked = study
    record_deviation(locked, reason="The read was not passed.", seen="results", opens=["never-used"])
    problems = list(load_problems(locked.path.parent / "never-used.jsonl").values())
    stage = "evaluations/never-used/N@2/reference"
    write_mark(ledger_path(locked.path), plan=locked.digest, study="small", stage=stage, use="evaluated", problems=problems)
    for subject in ("N@2", "X@2"):
        for side in ("reference", "subject"):
            write_side(run, locked, "never-used", subject, side)
    assert compare(run, locked, "never-used")[0].worked
    with pytest.raises(GateError, match="`p0` was evaluated in small, evaluations/never-used/N@2/reference"):
        compare(run, locked, "never-used", "X@2")


def test_held_out_problems_that_were_used_are_a_note(study):
    run, locked = study
    for side in ("reference", "subject"):
        write_side(run, locked, "held-out", "N@2", side)
    problems = list(load_problems(locked.path.parent / "held-out.jsonl").values())
    write_mark(
        ledger_path(locked.path), plan="", study="a benchmark", stage="imported", use="evaluated", problems=problems, reason="so"
    )
    _, said = compare(run, locked)
    assert said[0].startswith("note: held-out: 6 problems were used before, for instance `p0` was evaluated in a benchmark")


def test_the_runs_copy_of_a_set_must_be_the_locked_one(study):
    run, locked = study
    compare_copy = run.set_problems("held-out")
    compare_copy.parent.mkdir(parents=True)
    compare_copy.write_bytes(b"{}\n")
    with pytest.raises(
        IntegrityError, match="evaluations/held-out/problems.jsonl: is not the file that the plan was locked with"
    ):
        compare(run, locked)


def test_stages_of_comparisons_are_graded_on_their_own_problems(study):
    run, locked = study
    for side, kinds in (("reference", {"clean": 12}), ("subject", {"clean": 15})):
        write_side(run, locked, "held-out", "N@2", side, kinds)
    stages = graded_stages(run)
    wanted = [run.evaluated_reference("held-out", "N@2"), run.evaluated("held-out", "N@2")]
    assert [one for one in stages if "evaluations" in one.parts] == wanted
    assert {problems_file(run, one) for one in wanted} == {run.set_problems("held-out")}
    assert problems_file(run, run.sweep("main")) == run.problems
    app = typer.Typer()
    app.command()(grade)
    asked = ["--plan", str(locked.path), "--stage", "held-out", "--json"]
    for arm, side, correct in (("N", "subject", 15), ("start", "reference", 12)):
        found = json.loads(CliRunner().invoke(app, [*asked, "--arm", arm]).stdout)["stages"]
        assert {name: one["counts"]["correct"] for name, one in found.items()} == {f"evaluations/held-out/N@2/{side}": correct}


def test_what_is_not_as_planned_is_said_before_it_is_sampled_and_not_before_a_refusal(tmp_path):
    run, locked = make(tmp_path, selection=True)
    record_deviation(locked, reason="Another one is tried, too.", seen="results", opens=["extension", "selection", "release"])
    for side in ("reference", "subject"):
        write_side(run, locked, "main", "N@2", side)
    _, said = compare(run, locked, "main")
    assert said == ["main set: N@2 is not the selected checkpoint (none was selected); N@2 is sampled under deviation 1"]
    for arm in "NX":
        check(run, locked, arm, 4)
    with pytest.raises(UsageError, match="found X@4; a selection is between checkpoints of the arms that the plan extends: N"):
        compare(run, locked, "selection", "X@4")
    for side in ("reference", "subject"):
        write_side(run, locked, "held-out", "X@4", side)
    assert compare(run, locked, "held-out", "X@4")[1] == []  # its gate needs no deviation
    told = Said()
    with pytest.raises(IncompleteError, match="there is no whole reference"):
        evaluate(locked, run.root, told, "selection", "N@4", "N@3")
    assert told.lines == [] and not run.evaluated_reference("selection", "N@4").exists()
    gates = Gates(locked, run.root)
    assert gates.not_as_planned("held-out", "X@4") == ["the plan extends N, not X"]
    assert gates.not_as_planned("selection", "N@4") == []
    assert gates.not_as_planned("never-used", "N@2") == ["N@2 has NOT_RUN on the held-out problems, not WIN_VERIFIED"]
