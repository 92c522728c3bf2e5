"""A stage in which hardly any answer can be read: said beside every label, and undecided where the plan says so."""

from __future__ import annotations

import json

import pytest

from ablation.audit.run import audit_run
from ablation.plan.canonical import canonical_tree, plan_digest
from ablation.plan.judging import UnreadLimits
from ablation.report.terminal import plain_console
from ablation.report.verdict_tables import print_verdict
from ablation.verdict.run import judge_run
from ablation.verdict.unread import Unread, too_many
from tests.audit.build import make_run, write_verdict

from .study import lock_small, plan_dict, start_run, write_stage, write_study

LIMITS = {"at_most": 0.5, "differ_at_most": 0.2}


def unreadable_control(folder, **verdict):
    """The control's readout was decoded without its special tokens: 20 of the 22 that ended do so in their thinking."""
    locked = lock_small(folder / "plans", verdict=plan_dict()["verdict"] | verdict)
    run = start_run(folder / "runs" / "small", locked)
    write_study(run, locked)
    for path in sorted(run.readout("main", "C").iterdir()):
        path.unlink()
    write_stage(run, locked, "main", "C", {"clean": 1, "open": 20, "cut": 2})
    return judge_run(run.root, locked), locked


def page(verdict, plan):
    console = plain_console(width=80, color_system=None)
    with console.capture() as printed:
        print_verdict(verdict, plan, console)
    return printed.get()


def test_without_limits_the_label_stands_and_carries_the_share(tmp_path):
    verdict, locked = unreadable_control(tmp_path)
    control = verdict.arms[0]
    assert (control.name, control.label) == ("main/C", "DAMAGED")
    assert verdict.shown_arm(control) == "DAMAGED (redone; unread 91% against 0%)"
    assert verdict.shown_arm(verdict.arms[1]) == "STABLE"
    assert "unread: main/C" in verdict.shown(verdict.label)
    assert verdict.as_json()["unread"]["main/C/readout"] == {"unread": 20, "ended": 22, "share": 20 / 22}
    assert verdict.as_json()["unread"]["main/start/sweep"] == {"unread": 0, "ended": 22, "share": 0.0}
    text = " ".join(page(verdict, locked.plan).split())
    assert "0% to 91% of the answers that ended could not be read (7 stages)." in text
    warning = "20 of 22 answers that ended could not be read, 0 of 22 of the reference; at most 50% may be."
    assert f"UNREAD ANSWERS, main/C: {warning}" in text
    assert json.loads(json.dumps(verdict.as_json(), allow_nan=False))


def test_the_plan_can_say_that_it_decides_nothing(tmp_path):
    verdict, locked = unreadable_control(tmp_path, unread=LIMITS)
    control = verdict.arms[0]
    assert control.label == "UNDECIDED"
    reason = "20 of 22 answers that ended could not be read, 0 of 22 of the reference; at most 50% may be"
    assert {(one.holds, one.reason) for one in control.rules} == {(None, reason)}
    assert verdict.label != "REPLICATED"
    assert [one.label for one in verdict.arms[1:]] == ["STABLE"] * 4
    assert reason in " ".join(page(verdict, locked.plan).split())


@pytest.mark.parametrize(
    ("own", "reference", "why"),
    [
        ((10, 20), (8, 20), None),  # 50% is at most 50%
        ((11, 20), (8, 20), "11 of 20 answers that ended could not be read, 8 of 20 of the reference; at most 50% may be"),
        ((8, 20), (11, 20), "8 of 20 answers that ended could not be read, 11 of 20 of the reference; at most 50% may be"),
        ((5, 20), (1, 20), None),  # 20 points are not more than 20
        (
            (6, 20),
            (1, 20),
            "6 of 20 answers that ended could not be read, 1 of 20 of the reference; they may differ by 20 points",
        ),
        ((0, 0), (20, 20), None),  # nothing ended: that is what truncated counts
    ],
)
def test_limits_are_exact(own, reference, why):
    assert too_many(Unread(*own), Unread(*reference), UnreadLimits(**LIMITS)) == why


def test_a_plan_without_limits_has_the_digest_that_it_had(tmp_path):
    plan = lock_small(tmp_path / "without").plan
    assert "unread" not in canonical_tree(plan)["verdict"]
    other = lock_small(tmp_path / "with", verdict=plan_dict()["verdict"] | {"unread": LIMITS}).plan
    assert canonical_tree(other)["verdict"]["unread"] == LIMITS
    assert plan_digest(plan) != plan_digest(other)


@pytest.mark.parametrize("limits", [None, LIMITS])
def test_the_audit_finds_the_same(tmp_path, limits):
    verdict = plan_dict()["verdict"] | ({"unread": limits} if limits else {})
    claims = {"righter": {"subjects": ["N"], "reference": "C", "measure": "correct", "side": "greater", "method": "sign"}}
    made = make_run(
        tmp_path, extended=False, verdict=verdict | {"claims": claims}, kinds={("main", "C"): {"clean": 1, "open": 20}}
    )
    write_verdict(made)
    made.journal.close()
    found = audit_run(made.run.root, plan=made.locked.path)
    assert found.found.differences == []
    assert found.labels["main/C"] == ("UNDECIDED" if limits else "DAMAGED")
    assert found.labels["claim righter: N"] == ("UNDECIDED" if limits else "SHOWN")
    content = json.loads(made.run.verdict.read_bytes())
    content["unread"]["main/C/readout"]["unread"] = 1
    made.run.verdict.write_text(json.dumps(content))
    assert any("unread" in line for line in audit_run(made.run.root, plan=made.locked.path).found.differences)
