import pytest

from ablation.errors import GateError, IncompleteError, UsageError
from ablation.study.evaluate_sets import find_set
from ablation.study.evaluate_subject import find_subject, subjects_there
from tests.verdict.study import lock_small, start_run, write_stop

from .evaluations import check, make


@pytest.fixture
def study(tmp_path):
    return make(tmp_path, selection=True)


def test_arms_with_a_readout_and_eligible_checks_are_there(study):
    run, locked = study
    assert [one.name for one in subjects_there(locked, run)] == ["C@2", "N@2", "X@2"]
    check(run, locked, "N", 3, eligible=False)
    check(run, locked, "N", 4)
    assert [one.name for one in subjects_there(locked, run)] == ["C@2", "N@2", "N@4", "X@2"]
    found = find_subject(locked, run, "N@4")
    assert (found.family, found.arm, found.updates) == ("main", "N", 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N", "--subject: found `N`; it is ARM@UPDATES, for instance X@2"),
        ("N@", "found `N@`"),
        ("N@-1", "found `N@-1`"),
        ("start@0", "has no arm `start`; its arms are C, N, X; the start is the reference"),
        ("n@2", "has no arm `n`; its arms are C, N, X; did you mean `N`?"),
        ("N@1", "found N@1; the last update and the eligible checks of the extension are compared: 2 or 4"),
        ("N@3", "compared: 2 or 4"),
        ("N@9", "compared: 2 or 4"),
    ],
)
def test_what_is_no_subject(study, text, message):
    run, locked = study
    with pytest.raises(UsageError) as caught:
        find_subject(locked, run, text)
    assert message in caught.value.message and caught.value.hint == "There: C@2, N@2, X@2."


def test_what_is_not_there_yet_names_the_command_that_makes_it(tmp_path):
    run, locked = make(tmp_path)
    with pytest.raises(IncompleteError, match="main/N: has no check after update 4 yet") as caught:
        find_subject(locked, run, "N@4")
    assert caught.value.hint == f"First: ablation run --arm N --continue-to 4 --plan {locked.path}"
    (run.readout("main", "X") / "stage.json").unlink()
    with pytest.raises(IncompleteError, match="main/X: has no readout yet") as caught:
        find_subject(locked, run, "X@2")
    assert caught.value.hint == f"First: ablation run --arm X --plan {locked.path}"
    (run.checkpoint("main", "C", 2) / "complete.json").unlink()
    with pytest.raises(IncompleteError, match="update-2/checkpoint: is not there"):
        find_subject(locked, run, "C@2")


def test_a_damaged_check_and_an_arm_that_was_stopped_are_refused(tmp_path):
    run, locked = make(tmp_path)
    check(run, locked, "N", 4, "DAMAGED", eligible=False)
    with pytest.raises(GateError, match="the check after update 4 is DAMAGED, so N@4 is not eligible"):
        find_subject(locked, run, "N@4")
    (run.readout("main", "X") / "stage.json").unlink()
    write_stop(run, locked, "main", "X", {"rule": "logprob_fell", "update": 1})
    with pytest.raises(GateError, match="main/X: a stop rule ended it"):
        find_subject(locked, run, "X@2")


def test_an_extension_in_another_family_gives_no_subject(tmp_path):
    run, locked = make(tmp_path, evaluation={"family": "replication"})
    with pytest.raises(UsageError, match="arms are extended in main, and evaluation.family is replication"):
        find_subject(locked, run, "N@4")


def test_sets_that_a_plan_has_and_does_not_have(study, tmp_path):
    _, locked = study
    assert find_set(locked, "selection").total == 24
    with pytest.raises(UsageError, match=r"verdict.release.agent: the plan names no `agent` set") as caught:
        find_set(locked, "agent")
    assert caught.value.hint == "Its sets: held-out, never-used, selection, main."
    with pytest.raises(UsageError, match="there is no set `heldout`; did you mean `held-out`?"):
        find_set(locked, "heldout")
    bare = lock_small(tmp_path / "bare")
    start_run(tmp_path / "run", bare)
    with pytest.raises(UsageError, match="the plan names no `held-out` set") as caught:
        find_set(bare, "held-out")
    assert caught.value.hint == "Its sets: none."
