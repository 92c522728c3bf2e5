"""`ablation grade` and stored grades, on a study whose answers are programs or boxes (case B09)."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import typer
from typer.testing import CliRunner

from ablation.cli.grade import grade
from ablation.cli.verdict import verdict
from ablation.errors import IncompleteError, IntegrityError, UsageError
from ablation.files import json_bytes, sha256_bytes, sha256_file
from ablation.rollouts.journal_chain import read_journal
from ablation.rollouts.store import finish_stage, read_part, write_part
from ablation.verdict.run import judge_run
from tests.problems.sandbox.needs import needs_sandbox
from tests.verdict import study as made

app = typer.Typer()
app.command("grade")(grade)
app.command("verdict")(verdict)
DAMAGED = {("main", "C"), ("replication", "C")}


def call(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def problems(**fields) -> bytes:
    lines = []
    for i, name in enumerate(made.PROBLEMS):
        line = {"id": name, "source": "sums" if i % 2 else "products", "prompt": f"{i}?"}
        lines.append(line | {key: value(i) for key, value in fields.items()})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def answered(folder, say) -> None:
    """The same stage with the answer texts `say(number)`, as its sampler would have written it."""
    part = folder / "part-000.parquet"
    rows = read_part(part)
    for row in rows:
        row.answer_text = say(int(row.answer_text)) if row.answer_text else ""
    info = made.stage_info(made.verify_lock(folder.parents[4] / "plans" / "small.yaml"), row.family, row.arm)
    write_part(part, info, rows)
    finish_stage(folder, info, [part.name])


def build(tmp_path, monkeypatch, content, say, stages):
    """A run whose `stages` (family, arm) answer with `say`."""
    monkeypatch.setattr(made, "problems_bytes", lambda: content)
    locked = made.lock_small(tmp_path / "plans")
    run = made.start_run(tmp_path / "runs" / "small", locked)
    for family, arm in stages:
        kinds = {"clean": 7 if (family, arm) in DAMAGED else 12, "cut": 2}
        folder = made.write_stage(run, locked, family, arm, kinds)
        answered(folder, say)
        made.tell_stage(run, locked, folder)
    monkeypatch.chdir(tmp_path)
    return run, locked


@pytest.fixture
def maths(tmp_path, monkeypatch):
    """All that the plan asks for, answered in boxes."""
    pytest.importorskip("math_verify")
    stages = [
        (family, arm) for family in ("main", "replication") for arm in ("start", *"CNX") if (family, arm) != ("replication", "X")
    ]
    content = problems(grader=lambda i: "math", gold=str)
    return build(tmp_path, monkeypatch, content, lambda number: f"It is \\boxed{{{number}}}.", stages)


CODE = problems(
    grader=lambda i: "code",
    tests=lambda i: {
        "kind": "function",
        "entry_point": "f",
        "cases": [{"args": [], "expected": i}],
        "solution": f"def f(): return {i}",
    },
)


@needs_sandbox
def test_a_sandbox_that_fails_gives_no_score_and_only_those_rows_are_graded_again(tmp_path, monkeypatch):
    run, locked = build(
        tmp_path, monkeypatch, CODE, lambda number: f"```python\ndef f():\n    return {number}\n```", [("main", "start")]
    )
    real, started = shutil.which("bwrap"), tmp_path / "started"
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    # The probe of the sandbox and the first programs start it; then it is gone.
    broken.write_text(f'#!/bin/sh\necho x >> {started}\n[ "$(wc -l < {started})" -gt 4 ] && exit 1\nexec {real} "$@"\n')
    broken.chmod(0o755)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{broken.parent}:{path}")
    said = call("grade", code=6)
    assert "the grader failed on" in said.stdout and "no score; the same command grades them again" in said.stderr
    rows = json.loads((run.sweep("main") / "grades.json").read_bytes())["rollouts"]
    failed = [row for row in rows if row["status"] == "grader_error"]
    before = {(row["problem"], row["effort"], row["index"]): row for row in rows if row["status"] in ("correct", "incorrect")}
    assert failed and before
    with pytest.raises(IncompleteError, match=f"the grader failed on {len(failed)} rollouts: p") as caught:
        judge_run(run.root, locked)
    assert "`ablation grade`" in caught.value.hint

    monkeypatch.setenv("PATH", path)
    asked = []
    from ablation.problems.graders import code as grader

    graded = grader.grade_many
    monkeypatch.setattr(grader, "grade_many", lambda pairs, workers: asked.extend(pairs) or graded(pairs, workers))
    call("grade")
    assert {(problem.id, text) for problem, text in asked} == {(row["problem"], _answer(row)) for row in failed}
    rows = json.loads((run.sweep("main") / "grades.json").read_bytes())["rollouts"]
    assert {row["status"] for row in rows} == {"correct", "incorrect", None}
    assert all(before.get((row["problem"], row["effort"], row["index"]), row) == row for row in rows)
    assert sum(row["status"] == "correct" for row in rows) == 12
    events = [event for event in read_journal(run.journal) if event["event"] == "stage_graded"]
    assert [event["grader_errors"] for event in events] == [len(failed), 0]
    assert events[-1]["grades_sha256"] == sha256_file(run.sweep("main") / "grades.json")
    asked.clear()
    assert "main/start/sweep: was graded: 24 rollouts" in call("grade").stdout and not asked


def _answer(row) -> str:
    return f"```python\n{row['extracted']}```"


def test_slow_grades_are_taken_from_the_file_and_again_on_request(maths, monkeypatch):
    run, locked = maths
    call("grade")
    from ablation.problems.graders import math as grader

    monkeypatch.setattr(grader, "grade_many", lambda pairs, workers: pytest.fail("asked"))
    found = judge_run(run.root, locked)
    assert (found.label, found.notes) == ("REPLICATED", [])
    monkeypatch.undo()
    monkeypatch.chdir(run.root.parents[1])
    assert judge_run(run.root, locked, regrade=True).label == "REPLICATED"


def test_a_grade_that_was_edited_is_found(maths):
    run, locked = maths
    call("grade")
    path = run.readout("main", "N") / "grades.json"
    path.write_bytes(path.read_bytes().replace(b'"correct"', b'"incorrect"', 1))
    with pytest.raises(IntegrityError, match="another main/N/readout/grades.json than the one that is there"):
        judge_run(run.root, locked)
    with pytest.raises(IntegrityError, match="another main/N/readout/grades.json"):
        call("grade", "--again")
    path.unlink()  # what the message says
    assert judge_run(run.root, locked).label == "REPLICATED"
    assert "main/N/readout: graded: 24 rollouts" in call("grade", "--arm", "N", "--stage", "readout").stdout


def test_other_grades_are_told_by_regrade_and_by_again(maths):
    """A file that the journal tells of, but that this grader does not agree with: as if it was written by another version."""
    run, locked = maths
    call("grade")
    folder = run.readout("main", "N")
    content = json.loads((folder / "grades.json").read_bytes())
    row = next(row for row in content["rollouts"] if row["status"] == "correct")
    row |= {"status": "incorrect", "reason": "wrong_answer"}
    content["graders"]["math"]["source_sha256"] = "0" * 64
    (folder / "grades.json").write_bytes(json_bytes(content))
    made.tell(run, locked, "stage_graded", stage="main/N/readout", grades_sha256=sha256_bytes(json_bytes(content)))
    taken = judge_run(run.root, locked)
    assert "main/N/readout: was graded by another version of grader `math`; --regrade asks this one" in taken.notes
    anew = judge_run(run.root, locked, regrade=True)
    assert "main/N/readout: 1 rollouts are graded otherwise here than it is stored" in anew.notes
    clean = [one.figures.subject["clean"] for found in (taken, anew) for one in found.arms if one.name == "main/N"]
    assert clean == [11, 12]
    said = call("grade", "--again", "--arm", "N").stdout
    name = f"{row['problem']}@{row['effort']} #{row['index']}"
    assert f"    {name}: incorrect (wrong_answer, `{row['extracted']}`) -> correct (`{row['extracted']}`)" in said
    assert judge_run(run.root, locked).notes == []


def test_grading_again_that_was_killed_is_resumed(maths):
    """The event is there and the file is still the earlier one."""
    run, locked = maths
    call("grade")
    made.tell(run, locked, "stage_graded", stage="main/C/readout", grades_sha256="1" * 64)
    with pytest.raises(IncompleteError, match="main/C/readout: was being graded again, and that was not finished"):
        judge_run(run.root, locked)
    before = (run.readout("main", "C") / "grades.json").read_bytes()
    assert "main/C/readout: graded: 24" in call("grade").stdout
    assert (run.readout("main", "C") / "grades.json").read_bytes() == before
    assert judge_run(run.root, locked).label == "REPLICATED"


def test_an_update_keeps_the_grades_that_it_was_trained_with(maths):
    run, locked = maths
    call("grade")
    (run.readout("main", "N") / "audit.json").write_text("{}")
    made.tell(run, locked, "stage_graded", stage="main/N/readout", grades_sha256="2" * 64)
    path = run.readout("main", "N") / "grades.json"
    content = json.loads(path.read_bytes())
    next(row for row in content["rollouts"] if row["status"] == "correct")["status"] = "incorrect"
    path.write_bytes(json_bytes(content))
    made.tell(run, locked, "stage_graded", stage="main/N/readout", grades_sha256=sha256_file(path))
    kept = path.read_bytes()
    assert "main/N/readout: kept: the update was trained with them" in call("grade", "--again", "--arm", "N").stdout
    assert path.read_bytes() == kept


def test_what_cannot_be_graded_is_said(tmp_path, monkeypatch):
    build(tmp_path, monkeypatch, made.problems_bytes(), str, [])
    with pytest.raises(UsageError, match="there is no complete stage"):
        call("grade")
    with pytest.raises(UsageError, match="there is no such run folder"):
        call("grade", "--run", tmp_path / "nothing")
