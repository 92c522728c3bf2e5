"""`ablation evaluate`: what is wrong with a command line is said before a model is loaded. Comparisons that are made: tests/study."""

import pytest
import typer
from typer.testing import CliRunner

from ablation.cli.evaluate import _in_words, evaluate
from ablation.errors import IncompleteError, UsageError
from ablation.files import sha256_file
from ablation.plan.lock import lock_plan
from ablation.report.verdict_parts import hours_in_words
from ablation.study.evaluate import Compared
from tests.study.mini import ROOT, mini_tree, write_plan

app = typer.Typer()
app.command()(evaluate)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    tree, name = mini_tree(), "tiny-reasoner/held-out.jsonl"
    rule = {"name": "kept", "measure": "correct", "compare": "change", "op": ">=", "limit": -3}
    place = {"at": f"package:{name}", "sha256": sha256_file(ROOT / "ablation" / "assets" / name)}
    tree["verdict"]["held_out"] = {
        "rollouts": 72,
        "problems": place,
        "rules": [rule],
        "blinded_read": {"pairs": 2, "passes": 2},
    }
    path = write_plan(tmp_path_factory.mktemp("evaluate"), tree)
    lock_plan(path)
    return path


def call(plan, *arguments):
    result = CliRunner().invoke(app, [*arguments, "--plan", str(plan)])
    assert result.exception is not None
    raise result.exception


def test_only_the_start_is_a_reference(plan):
    with pytest.raises(UsageError, match="--reference: found `C@2`; every model is compared with the `start`"):
        call(plan, "held-out", "--subject", "XK@2", "--reference", "C@2")


def test_a_set_that_the_plan_has_not(plan):
    with pytest.raises(UsageError, match="verdict.release.main: the plan names no `main` set") as caught:
        call(plan, "main", "--subject", "XK@2")
    assert caught.value.hint == "Its sets: held-out."


def test_a_run_that_was_not_begun_is_not_made(plan):
    with pytest.raises(IncompleteError, match="runs/mini: this run was not begun"):
        call(plan, "held-out", "--subject", "XK@2")
    assert not (plan.parent.parent / "runs").exists()


def test_what_it_came_to_in_words():
    record = {"set": "main", "subject": "N@5", "rollouts": 48, "correct": {"subject": 30, "reference": 33}}
    assert _in_words(Compared(record, 1.9, True)) == [
        "main set: N@5 30 correct, the start 33, of 48 each (-3)",
        "main set: both sampled within 114 minutes",
    ]


@pytest.mark.parametrize(
    ("hours", "words"), [(0.005, "18 seconds"), (0.5, "30 minutes"), (1.9, "114 minutes"), (7.25, "7.2 hours")]
)
def test_how_long_it_took(hours, words):
    assert hours_in_words(hours) == words
