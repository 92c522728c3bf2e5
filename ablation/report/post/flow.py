"""From what was planned to what is judged: what became of every run, for a flow diagram after CONSORT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablation.plan.model import Plan
from ablation.plan.runs import FIRST_STABLE_ARM, families_of, perhaps_again, planned_runs
from ablation.study.state import ArmState, run_state
from ablation.verdict.model import FROM_ROLLOUTS, INCOMPLETE, NOT_RUN, STOPPED, ArmVerdict, Verdict


@dataclass(frozen=True)
class RunOfArm:
    """What became of one arm in one family."""

    family: str
    arm: str
    updates: int
    """Updates that were trained."""
    planned_updates: int
    readout: str
    """`yes`, `partly`, `no`."""
    rollouts: int | None
    """Of its readout."""
    stopped: dict[str, Any] | None
    imported: bool
    label: str | None
    """As it is shown; None without one."""

    @property
    def name(self) -> str:
        return f"{self.family}/{self.arm}"

    @property
    def begun(self) -> bool:
        return bool(self.updates or self.readout != "no" or self.stopped)

    def as_json(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "arm": self.arm,
            "updates": self.updates,
            "planned_updates": self.planned_updates,
            "readout": self.readout,
            "rollouts": self.rollouts,
            "stopped": None if self.stopped is None else self.stopped.get("rule"),
            "imported": self.imported,
            "label": self.label,
        }


@dataclass(frozen=True)
class FamilyFlow:
    """One family of seeds."""

    family: str
    sweep: int | None
    """Rollouts of its sweep; None without one."""
    runs: tuple[RunOfArm, ...]
    why: str = "control and first stable arm"
    """What is run in it, where it is not the first."""


@dataclass(frozen=True)
class Flow:
    families: tuple[FamilyFlow, ...]
    compared: tuple[tuple[str, str, int | None, str | None], ...]
    """(set, subject, rollouts of each model or None if it is not whole, which deviation opened it) of phase 2."""
    planned_sets: tuple[str, ...]
    """Sections of phase 2 that the plan has, and that nothing was sampled for."""

    def as_json(self) -> dict[str, Any]:
        return {
            "families": [
                {"family": one.family, "sweep": one.sweep, "runs": [run.as_json() for run in one.runs]} for one in self.families
            ],
            "compared": [dict(zip(("set", "subject", "rollouts", "opened_by"), one, strict=True)) for one in self.compared],
        }


def flow(plan: Plan, verdict: Verdict, root: Path | None) -> Flow:
    """`root`: the run folder; None for reported figures, of which only what the file has is known."""
    there = run_state(plan, root, verdict.deviations).arms if root is not None else []
    state = {(one.family, one.arm): one for one in there}
    judged = {(one.family, one.arm): one for one in verdict.arms}
    pairs = planned_runs(plan, verdict.stable_arm, also=lambda *run: run in state or run in judged)
    if verdict.stable_arm is None and verdict.label == INCOMPLETE and perhaps_again(plan):
        pairs.append((plan.verdict.replication.family, FIRST_STABLE_ARM))
    families = []
    for family in families_of(pairs):
        sweep = verdict.sweeps.get(family, {}).get("rollouts")
        runs = [_run(plan, verdict, pair, state.get(pair), judged.get(pair)) for pair in pairs if pair[0] == family]
        one = FamilyFlow(family, sweep, tuple(runs))
        families.append(one if family == plan.verdict.replication.family else replace(one, why="for claims"))
    return Flow(tuple(families), tuple(_compared(verdict)), tuple(_not_run(verdict)))


def _run(plan: Plan, verdict: Verdict, name: tuple[str, str], own: ArmState | None, judged: ArmVerdict | None) -> RunOfArm:
    """`name`: family and arm; `own` and `judged`: what the folder and the verdict have of it."""
    family, arm = name
    steps = verdict.steps.get(f"{family}/{arm}", {})
    figures = None if judged is None else judged.figures
    label = None if judged is None else verdict.shown_arm(judged)
    reported = verdict.source != FROM_ROLLOUTS and figures is not None
    return RunOfArm(
        family=family,
        arm=arm,
        updates=max(own.updates_done if own else 0, int(steps.get("updates", 0))),
        planned_updates=plan.training.updates,
        readout="yes" if reported or (figures is not None) else (own.readout if own else "no"),
        rollouts=None if figures is None else figures.subject.get("rollouts"),
        stopped=judged.stopped if judged is not None and judged.label == STOPPED else None,
        imported=bool(own and own.imported),
        label=label,
    )


def _compared(verdict: Verdict) -> Sequence[tuple[str, str, int | None, str | None]]:
    found = {}
    for section in verdict.sections.values():
        for one in (section, *section.others):
            for compared in one.compared:
                rollouts = compared.figures.subject.get("rollouts") if compared.figures is not None else None
                opened = None if compared.opened is None else f"deviation {compared.opened}"
                found[compared.name, compared.subject] = (compared.name, compared.subject, rollouts, opened)
    return list(found.values())


def _not_run(verdict: Verdict) -> list[str]:
    return [name for name, one in verdict.sections.items() if one.label == NOT_RUN and not one.others]
