"""How far a run is, for a page that asks again while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablation.errors import AblationError
from ablation.files import parse_json
from ablation.plan.deviations import Deviation, read_deviations
from ablation.plan.model import Plan
from ablation.rollouts.attempts import Attempts, attempts_of
from ablation.rollouts.folder import stage_file
from ablation.study.phase2_state import ComparisonState, SetState, phase2_state
from ablation.study.runlock import runner_at_work
from ablation.study.schedule import cells_of_update
from ablation.study.state import RunState, run_state
from ablation.view.library import Study

LAST = 12
"""Events that are shown."""


@dataclass(frozen=True)
class Sampling:
    """A stage that is being sampled, or was left unfinished."""

    stage: str
    rollouts: int
    wanted: int | None

    @property
    def percent(self) -> float | None:
        return None if not self.wanted else min(100.0, 100 * self.rollouts / self.wanted)


@dataclass(frozen=True)
class Progress:
    """All that the page shows."""

    state: RunState
    sets: list[SetState]
    counts: dict[tuple[str, str], int]
    """(set, subject) -> rollouts of the subject, where its stage is complete."""
    worker: str | None
    sampling: list[Sampling]
    events: list[dict[str, Any]]
    """The newest first."""
    count: int
    began: str | None
    deviations: list[Deviation]
    attempts: Attempts
    note: str | None
    """What of the run folder could not be read."""


def progress(study: Study) -> Progress:
    """Raises `IntegrityError` for a plan that is not what was locked; a journal or deviations that cannot be read are a note."""
    locked, run = study.locked, study.run
    note, events, deviations, attempts = None, [], [], Attempts()
    try:
        deviations = read_deviations(run.deviations, locked.digest)
        chain = study.journal()
        events, attempts = chain.records, attempts_of(study.root, locked.path, locked.digest, chain)
    except AblationError as error:
        note = " ".join(error.lines())
    sets = []
    try:
        sets = phase2_state(locked, study.root, deviations)
    except AblationError as error:
        note = note or " ".join(error.lines())
    return Progress(
        run_state(locked.plan, study.root, deviations) if note is None else _without_events(locked.plan, study),
        sets,
        {(one.set, one.subject): count for of in sets for one in of.comparisons if (count := _count(study, one)) is not None},
        runner_at_work(study.root),
        _sampling(study, locked.plan, events),
        [_event(one) for one in reversed(events[-LAST:])],
        len(events),
        events[0]["time"] if events else None,
        deviations,
        attempts,
        note,
    )


def _count(study: Study, one: ComparisonState) -> int | None:
    """Rollouts of the subject, as its `stage.json` says."""
    path = stage_file(study.run.evaluated(one.set, one.subject))
    try:
        return sum(int(part["rows"]) for part in parse_json(path.read_bytes())["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _without_events(plan: Plan, study: Study) -> RunState:
    try:
        return run_state(plan, study.root)
    except AblationError:
        return RunState(study.root, {family: "no" for family in plan.families}, [])


def _sampling(study: Study, plan: Plan, events: Sequence[dict[str, Any]]) -> list[Sampling]:
    """Stages that have parts and are not complete."""
    found: dict[str, int] = {}
    for event in events:
        if event.get("event") == "part_written":
            found[str(event.get("stage"))] = found.get(str(event.get("stage")), 0) + int(event.get("rollouts") or 0)
    return [
        Sampling(stage, rollouts, _wanted(plan, stage))
        for stage, rollouts in found.items()
        if not stage_file(study.root / stage).is_file() and any((study.root / stage).glob("part-*.parquet"))
    ]


def _wanted(plan: Plan, stage: str) -> int | None:
    """Rollouts of a stage on the training cells; None for a comparison."""
    family, _, kind = [*stage.split("/"), "", ""][:3]
    if family not in plan.families:
        return None
    if kind.startswith("update-") and kind.removeprefix("update-").isdecimal():
        return len(cells_of_update(plan, family, int(kind.removeprefix("update-")))) * plan.training.rollouts_per_cell
    return plan.sweep_rollouts


def _event(event: dict[str, Any]) -> dict[str, Any]:
    where = event.get("stage") or event.get("arm") or event.get("set") or ""
    if event.get("arm") and event.get("update") is not None:
        where = f"{event['arm']}/update-{event['update']}"
    if event.get("set") and event.get("subject") and event["event"].startswith("evaluation"):
        where = f"{event['set']}/{event['subject']}"
    more = []
    if event.get("rollouts") is not None:
        more.append(f"{event['rollouts']:,} rollouts")
    if isinstance(event.get("seconds"), int | float):
        more.append(f"{event['seconds']:.1f} s")
    if event.get("outcome"):
        more.append(str(event["outcome"]))
    return {"time": event["time"], "name": event["event"].replace("_", " "), "where": where, "more": ", ".join(more)}
