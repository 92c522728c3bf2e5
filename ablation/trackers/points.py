"""What a run has to tell by now, read from its folder: one point for each update, sweep, check and readout."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ablation.files import MARKER, parse_json, sha256_bytes
from ablation.measures.measure import measure
from ablation.plan.model import Plan
from ablation.problems.problem import load_problems
from ablation.rollouts.folder import RunFolder, measures_file
from ablation.rollouts.grades import grades_of
from ablation.rollouts.imported import is_imported
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.store import read_stage, stage_info, stage_is_complete
from ablation.trackers.metrics import Values, audit_values, margin_values, measures_values, speed_values

CELLS = "cells/"
"""Begins the names of what is measured on all cells: sweep, checks and readout."""


@dataclass(frozen=True)
class Point:
    """Values of one series at one step."""

    series: str
    """`family/arm`."""
    name: str
    """What it is of: `start`, `update-1`, `check-10`, `readout`. No two points of a series share it."""
    step: int
    """Updates done; 0 for the starting model."""
    time: float
    """Of the event that completed it, in seconds since 1970: a replay has the times of the run."""
    values: Values

    @property
    def group(self) -> str:
        """`update` or `cells`; a series has one point of each at a step."""
        return "update" if self.name.startswith("update-") else "cells"


@dataclass
class Events:
    """The journal as it grows: each call of `read` takes up the whole lines that are new."""

    path: Path
    offset: int = 0
    sampled: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stage -> its newest `stage_sampled`, `stage_imported` or `stage_graded`."""
    completed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stage -> its newest `stage_sampled`."""
    trained: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    """(`family/arm`, update) -> its newest `update_trained`."""
    ended: dict[str, str] = field(default_factory=dict)
    """`family/arm` -> `arm_finished`, or `arm_stopped`."""
    extension_stopped: set[str] = field(default_factory=set)
    """`family/arm`."""
    parts: dict[str, int] = field(default_factory=dict)
    """Stage that is not complete -> rollouts in its parts."""
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=12))
    """The newest ones."""
    began: str | None = None
    """Time of the first one."""
    count: int = 0

    def read(self) -> bool:
        """Whether there was anything new."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))
        return bool(whole)

    def _take(self, event: dict[str, Any]) -> None:
        self.count += 1
        self.recent.append(event)
        self.began = self.began or event["time"]
        kind = event.get("event")
        if kind == "part_written":
            self.parts[event["stage"]] = self.parts.get(event["stage"], 0) + event["rollouts"]
        elif kind in ("stage_sampled", "stage_imported", "stage_reused"):
            self.parts.pop(event["stage"], None)
        if kind in ("stage_sampled", "stage_imported", "stage_graded"):
            self.sampled[event["stage"]] = event
        if kind == "stage_sampled":
            self.completed[event["stage"]] = event
        elif kind == "update_trained":
            self.trained[event["arm"], event["update"]] = event
        elif kind in ("arm_finished", "arm_stopped"):
            self.ended[event["arm"]] = kind
        elif kind == "extension_stopped":
            self.extension_stopped.add(event["arm"])


@dataclass(frozen=True)
class Source:
    """A run whose points are asked for."""

    plan: Plan
    run: RunFolder
    events: Events

    def points(self, told: Container[tuple[str, str]] = ()) -> Iterator[Point]:
        """What is complete and not `told` (series and name), series by series in plan order, each in the order of its steps.

        A series begins with the first stage of its own, so an arm that has not begun is not made up from its sweep.
        """
        for family in self.plan.families:
            for arm in self.plan.arms:
                yield from self._series(family, arm, told)

    def _series(self, family: str, arm: str, told: Container[tuple[str, str]]) -> list[Point]:
        series, own = f"{family}/{arm}", self.plan.training.updates
        if not self.run.arm(family, arm).is_dir():
            return []
        extension = self.plan.extension
        places: list[tuple[str, int, Path | None]] = [("start", 0, self.run.sweep(family))]
        for k in range(1, (own if extension is None else extension.updates) + 1):
            places.append((f"update-{k}", k, None))
            if k == own:
                places.append(("readout", k, self.run.readout(family, arm)))
            if extension is not None and k in extension.checks:
                places.append((f"check-{k}", k, self.run.check(family, arm, k)))
        found = []
        for name, step, cells in places:
            if (series, name) in told:
                continue
            own_point = self._update(family, arm, step) if cells is None else self._cells(series, name, step, cells)
            if own_point is not None:
                found.append(own_point)
        begun = any(point.name != "start" for point in found) or any((series, name) in told for name, _, _ in places)
        return found if begun else []

    def _update(self, family: str, arm: str, k: int) -> Point | None:
        series, folder = f"{family}/{arm}", self.run.update(family, arm, k)
        event = self.events.trained.get((series, k))
        if not self._is_done(family, arm, k):
            return None  # a runner that is killed now trains it again
        try:
            data = self.run.audit(family, arm, k).read_bytes()
        except FileNotFoundError:
            return None
        if event is None or event.get("audit_sha256") not in (None, sha256_bytes(data)):
            return None  # the journal is behind or ahead of it for a moment
        audit = parse_json(data)
        first = audit if k == 1 else _read(self.run.audit(family, arm, 1)) or {}
        measures = _read(measures_file(folder))
        values = {} if measures is None else measures_values(measures, "update/")
        values |= audit_values(audit)
        values |= margin_values(self.plan.stop_rules, [one.get("metrics") or {} for one in (first, audit)])
        values |= speed_values(self.events.completed.get(f"{series}/update-{k}"), event)
        return Point(series, f"update-{k}", k, _seconds(event), values)

    def _is_done(self, family: str, arm: str, k: int) -> bool:
        """Whether update `k` is over: it has its checkpoint, or, where a record was kept without, the arm has gone on."""
        series, own = f"{family}/{arm}", self.plan.training.updates
        if (self.run.checkpoint(family, arm, k) / MARKER).is_file() or f"{series}/update-{k + 1}" in self.events.sampled:
            return True
        return (k <= own and series in self.events.ended) or series in self.events.extension_stopped

    def _cells(self, series: str, name: str, step: int, folder: Path) -> Point | None:
        """What was measured of a stage on all cells; None if it is not complete."""
        event = self.events.sampled.get(folder.relative_to(self.run.root).as_posix())
        if event is None or not stage_is_complete(folder):
            return None
        measures = _read(measures_file(folder)) or self._imported(folder)
        return None if measures is None else Point(series, name, step, _seconds(event), measures_values(measures, CELLS))

    def _imported(self, folder: Path) -> dict[str, Any] | None:
        """The measures of rollouts that were sampled elsewhere, which have no file of them."""
        if not is_imported(stage_info(folder)):
            return None
        stage, problems = read_stage(folder), load_problems(self.run.problems)
        return measure(outcomes(stage, problems, self.plan.loops, grades_of(folder, stage, problems)))


def open_source(plan: Plan, root: Path) -> Source:
    run = RunFolder(root)
    return Source(plan, run, Events(run.journal))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return parse_json(path.read_bytes())
    except FileNotFoundError:
        return None


def _seconds(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()
