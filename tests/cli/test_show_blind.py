"""`ablation show` and `ablation measure` on answers that the plan has read blind: nobody reads them before the key is opened."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ablation.cli.blind import app as blind
from ablation.cli.main import app
from ablation.errors import GateError
from ablation.files import sha256_bytes
from ablation.rollouts.folder import grades_file
from ablation.study.journal import Journal
from tests.blind.made import SUBJECT, held_out_rows, start, write_evaluation
from tests.study.mini import ablation

STAGE = f"held-out/{SUBJECT}/subject"
ONE = f"{STAGE}/sum-0@low#1"


@pytest.fixture
def run(tmp_path, monkeypatch):
    found, locked, _ = start(tmp_path)
    write_evaluation(found, locked, "held-out", held_out_rows(), "C@2")
    monkeypatch.chdir(tmp_path)
    return found


def opened(subject=SUBJECT, rater="ann"):
    """The read from the first pair to the opened key."""
    own = typer.Typer()
    own.add_typer(blind, name="blind")

    def call(*arguments):
        result = CliRunner().invoke(own, ["blind", *arguments])
        assert result.exit_code == 0, result.output

    call("pairs", "--subject", subject)
    form = json.loads(Path(f"runs/small/evaluations/held-out/{subject}/blind/form.json").read_text())
    form["blinded"] = True
    for one in form["ratings"]:
        one |= {"same_answer": True, "same_method": True, "x_missing_checks": False, "y_missing_checks": False}
    Path("said.json").write_text(json.dumps(form))
    call("import", "held-out", "said.json", "--subject", subject, "--rater", rater)
    call("unseal", "--subject", subject)


@pytest.mark.parametrize(
    "arguments",
    [
        (STAGE,),
        (STAGE, "--json"),
        (STAGE, "--all", "--only", "correct"),
        (ONE,),
        (ONE, "--json"),
        (ONE, "--beside", "start"),
        (f"held-out/{SUBJECT}/reference",),
        (f"evaluations/held-out/{SUBJECT}/reference/sum-0@low#1", "--json"),
    ],
)
def test_answers_that_are_read_blind_are_not_shown(run, arguments):
    done = ablation(run.root.parent.parent, "show", *arguments, "--run", str(run.root))
    assert done.returncode == 4
    assert "gives" not in done.stdout + done.stderr and "sum-0" not in done.stdout
    said = " ".join((done.stdout + done.stderr).split())
    assert f"held-out/{SUBJECT}: the plan has answers of `held-out` read blind, and the read of {SUBJECT} was not opened" in said
    assert f"ablation blind unseal held-out --subject {SUBJECT} --run " in said


def test_measure_of_such_a_stage_is_refused_too(run):
    folder = run.evaluated("held-out", SUBJECT)
    for path in (str(folder), str(folder.relative_to(run.root.parent.parent))):
        done = ablation(run.root.parent.parent, "measure", path, "--rollout", "sum-0@low #1")
        assert done.returncode == 4 and "read blind" in done.stderr and "gives" not in done.stdout


def test_an_opened_read_is_shown_and_the_other_one_is_not(run):
    opened()

    def show(*arguments):
        return CliRunner().invoke(app, ["show", *arguments, "--run", str(run.root)])

    assert show(ONE).exit_code == 0 and "gives" in show(ONE).output
    measured = CliRunner().invoke(app, ["measure", str(run.evaluated("held-out", SUBJECT)), "--rollout", "sum-0@low #1"])
    assert measured.exit_code == 0 and "thinking       23 characters, closed" in measured.output
    assert isinstance(show(STAGE.replace(SUBJECT, "C@2")).exception, GateError)
    # the start's answers are one side of the other read's pairs
    beside = ablation(run.root.parent.parent, "show", ONE, "--beside", "start", "--run", str(run.root))
    assert beside.returncode == 4 and "the read of C@2 was not opened" in " ".join(beside.stderr.split())
    opened("C@2", "bo")
    assert show(ONE, "--beside", "start").exit_code == 0


def test_grade_says_of_such_a_stage_how_many_grades_changed_and_not_which(run):
    def grade(*more):
        done = ablation(run.root.parent.parent, "grade", "--run", str(run.root), "--stage", "held-out", "--arm", "N", *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    grade()
    path, journal = grades_file(run.evaluated("held-out", SUBJECT)), run.journal
    before = path.read_text()
    assert before.count('"status": "correct"') == 22  # all but the two of UNSOLVED
    assert grade("--again").count("changed") == 0
    stored = before.replace('"status": "correct"', '"status": "incorrect"', 1)
    path.write_text(stored)
    last = json.loads(journal.read_text().splitlines()[-1])
    assert last["event"] == "stage_graded"
    own = Journal(journal, last["plan"])
    told = {name: last[name] for name in ("stage", "rollouts", "grader_errors", "changed")}
    own.append("stage_graded", **told, grades_sha256=sha256_bytes(stored.encode()))
    own.close()
    said = grade("--again", "--json")
    assert json.loads(said)["stages"][f"evaluations/held-out/{SUBJECT}/subject"]["changed"] == [
        "grades that changed: 1; which ones is not said before the blinded read is opened"
    ]
