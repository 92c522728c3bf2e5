"""What a deviation let through is said beside the label that it touches."""

from __future__ import annotations

import pytest

from ablation.rollouts.comparisons import OPENED
from ablation.verdict.run import judge_run
from tests.study.evaluations import EXTENSION, make
from tests.verdict.study import tell, write_stage
from tests.verdict.test_phase2 import compare, deviate, section, selecting


def check(run, locked, arm, update, clean=13):
    folder = run.check("main", arm, update)
    write_stage(run, locked, "main", arm, {"clean": clean, "cut": 2}, folder=folder, stage="check", update=update)


def under_deviation(run, locked, name, subject, kinds=None):
    told = {"set": name, "subject": subject, "reference": "start", "reused": None, "deviation": 1}
    tell(run, locked, OPENED, **told, there={"reference": 0, "subject": 0})
    compare(run, locked, name, subject, kinds)


def test_a_release_with_a_checkpoint_that_was_not_selected_says_so(tmp_path):
    run, locked = selecting(tmp_path)
    deviate(run, locked, "release")
    under_deviation(run, locked, "main", "N@2")
    for name in ("main", "release"):
        found = section(run, locked, name)
        assert (found.label, found.subject, found.wrong) == ("WIN" if name == "main" else "RELEASE", "N@2", [])
        assert (found.reasons[0].code, found.reasons[0].text) == (
            "NOT_SELECTED",
            "N@2 is not the selected checkpoint (the selection says NOT_RUN); it was sampled under deviation 1.",
        )
    for update in (3, 4, 6):
        check(run, locked, "N", update)
        compare(run, locked, "selection", f"N@{update}", {"clean": 9 + update})
    under_deviation(run, locked, "main", "N@6")
    release = section(run, locked, "release")
    assert release.subject == "N@6" and "NOT_SELECTED" not in {one.code for one in release.reasons}
    (other,) = release.others
    assert other.reasons[0].text == "N@2 is not the selected checkpoint (N@6); it was sampled under deviation 1."


@pytest.mark.parametrize("arms", ["first_stable", ["N"]])
def test_an_arm_that_the_plan_does_not_extend_is_no_candidate(tmp_path, arms):
    run, locked = make(tmp_path, selection=True)
    extension = locked.plan.extension.model_dump(mode="json", exclude_unset=True)
    run, locked = make(tmp_path / "again", selection=True, extension=extension | EXTENSION | {"arms": arms})
    deviate(run, locked, "extension")
    text = "The plan extends N, not X; it was extended under deviation 1. Its checkpoints are no candidates."
    check(run, locked, "X", 4)
    found = section(run, locked, "selection")
    assert (found.label, [(one.code, one.text) for one in found.reasons]) == ("NOT_RUN", [("NOT_EXTENDED_BY_PLAN", text)])
    check(run, locked, "N", 4)
    compare(run, locked, "selection", "N@4")
    found = section(run, locked, "selection")
    assert (found.label, found.subject, found.missing) == ("SELECTED", "N@4", ())
    assert [one["subject"] for one in found.candidates] == ["N@4"]
    assert [one.code for one in found.reasons] == ["NOT_EXTENDED_BY_PLAN", "SELECTED"]
    compare(run, locked, "held-out", "X@4")
    held_out = judge_run(run.root, locked).sections["held_out"]
    assert held_out.subject == "X@4" and held_out.reasons[0].text == text.removesuffix(" Its checkpoints are no candidates.")
