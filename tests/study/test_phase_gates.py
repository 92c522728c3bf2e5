import pytest

from ablation.errors import GateError
from ablation.plan.deviations import deviations_path, read_deviations, record_deviation
from ablation.study.phase_gates import GATE_OF, Gates, check_phase_gate

from .evaluations import make, write_side


def asked(run, locked, set_name, subject="N@2"):
    deviations = read_deviations(deviations_path(locked.path), locked.digest)
    return check_phase_gate(locked, run.root, deviations, set_name, subject)


def closed(run, locked, set_name, subject="N@2") -> str:
    with pytest.raises(GateError) as caught:
        asked(run, locked, set_name, subject)
    assert caught.value.exit_code == 4
    assert f"`ablation plan deviate {locked.path} --opens {GATE_OF[set_name]} --seen results --reason ...`" in caught.value.hint
    return caught.value.message.removeprefix(f"{run.root}: ")


def test_after_replicated_all_but_the_never_used_set_are_open(tmp_path):
    run, locked = make(tmp_path)
    for name in ("held-out", "main", "agent", "safety"):
        assert asked(run, locked, name) is None
    assert closed(run, locked, "never-used") == (
        "never-used problems are for a model with WIN_VERIFIED on the held-out ones; N@2 has NOT_RUN"
    )


def test_without_replicated_each_is_closed_and_opened_by_its_own_deviation(tmp_path):
    run, locked = make(tmp_path, damaged=frozenset({("main", "C")}))
    for name in ("held-out", "selection", "main", "agent", "safety"):
        assert closed(run, locked, name) == "phase 2 needs REPLICATED; the verdict on this run is NOT_REPLICATED"
    record_deviation(locked, reason="We want to see it all the same.", seen="results", opens=["held-out"])
    assert asked(run, locked, "held-out").number == 1
    for name in ("selection", "main", "agent", "safety", "never-used"):
        closed(run, locked, name)
    record_deviation(locked, reason="We want to see it all the same.", seen="results", opens=["release", "never-used"])
    assert {asked(run, locked, name).number for name in ("main", "agent", "safety", "never-used")} == {2}


def test_a_run_that_is_not_whole_is_incomplete_whatever_its_headline_says(tmp_path):
    run, locked = make(tmp_path)
    (run.readout("main", "X") / "stage.json").unlink()  # not the control, and not the first stable arm
    assert closed(run, locked, "held-out") == "phase 2 needs REPLICATED; the verdict on this run is INCOMPLETE"


def test_never_used_problems_are_for_a_verified_win_of_the_same_model(tmp_path, monkeypatch):
    run, locked = make(tmp_path)
    for side in ("reference", "subject"):
        write_side(run, locked, "held-out", "N@2", side)
    assert "N@2 has WIN_UNVERIFIED" in closed(run, locked, "never-used")  # the rule holds, and nobody has read a pair
    labels = {"N@2": "WIN_VERIFIED", "X@2": "NO_WIN"}
    monkeypatch.setattr(Gates, "held_out", lambda self, subject: labels[subject])
    assert asked(run, locked, "never-used") is None
    assert "X@2 has NO_WIN" in closed(run, locked, "never-used", "X@2")


def test_a_release_is_tried_with_the_checkpoint_that_was_selected(tmp_path, monkeypatch):
    run, locked = make(tmp_path, selection=True)
    for name in ("main", "agent", "safety"):
        assert closed(run, locked, name) == "a release is tried with the checkpoint that was selected; none was"
    monkeypatch.setattr(Gates, "selected", "N@4")
    assert closed(run, locked, "main") == "a release is tried with the checkpoint that was selected; that is N@4"
    assert asked(run, locked, "main", "N@4") is None
    assert asked(run, locked, "held-out") is None  # that one asks for no selection
