"""Each arm against the control at every update and at the readout, paired by cell: its drift, free of which cells it saw.

Arms of a family see the same cells at an update, with the same sampling seeds, and the same rollouts at update 1. So the
difference to the control is taken cell by cell (`measures.changes`), with the plan's own interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ablation.measures.changes import changes
from ablation.measures.estimate import Estimate
from ablation.plan.lock import LockedPlan
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.imported import absent_measures
from ablation.rollouts.outcomes import Outcomes
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import read_stage, stage_is_complete
from ablation.verdict.completeness import check_stage_of_plan

MEASURES = ("logprob", "top20_entropy")
READOUT = "readout"


@dataclass(frozen=True)
class Point:
    """One arm minus the control, at one update or at the readout."""

    family: str
    arm: str
    control: str
    stage: str
    """`update-K`, or READOUT."""
    rollouts: int
    """Of each of the two."""
    estimates: dict[str, Estimate]

    def as_json(self) -> dict[str, Any]:
        content = {"family": self.family, "arm": self.arm, "control": self.control, "stage": self.stage}
        return content | {"rollouts": self.rollouts} | {name: one.as_json() for name, one in self.estimates.items()}


class Curves:
    """Takes the stages that somebody else reads anyway, reads the others, and pairs them."""

    def __init__(self, root: Path, locked: LockedPlan) -> None:
        self.run, self.locked, self.plan = RunFolder(root), locked, locked.plan
        self._taken: dict[tuple[str, str, str], tuple[Outcomes, set[str]]] = {}

    def take(self, stage: Stage) -> None:
        """Keep the two means of every rollout of an update or a readout."""
        info = stage.info
        name = READOUT if info.stage == READOUT else f"update-{info.update}"
        self._taken[info.family, info.arm, name] = means_alone(stage), set(absent_measures(info))

    def points(self) -> Iterator[Point]:
        """Every point whose two stages are whole, family by family, arm by arm in plan order.

        Raises `IntegrityError` for rollouts that are not what was written, or no partners of each other.
        """
        control = self.plan.verdict.replication.control
        updates = self.plan.training.updates
        stages = [*((f"update-{k}", "update", k) for k in range(1, updates + 1)), (READOUT, "readout", updates)]
        for family in self.plan.families:
            for arm in (name for name in self.plan.arms if name != control):
                for stage, *kind in stages:
                    other = self._of(family, control, stage, *kind)
                    own = None if other is None else self._of(family, arm, stage, *kind)
                    if own is None or other is None:
                        continue
                    names = [one for one in MEASURES if one not in own[1] | other[1]]
                    found = changes(own[0], other[0], self.plan.statistics, "cell", names)
                    yield Point(family, arm, control, stage, len(own[0]), found)

    def _of(self, family: str, arm: str, stage: str, kind: str, update: int) -> tuple[Outcomes, set[str]] | None:
        """(the stage's rollouts, measures that it does not have); None if it is not whole."""
        if (family, arm, stage) not in self._taken:
            folder = self.run.arm(family, arm) / stage
            if not stage_is_complete(folder):
                return None
            found = read_stage(folder)
            check_stage_of_plan(found, self.plan, self.locked.digest, (family, arm, kind, update), folder)
            self.take(found)
        return self._taken[family, arm, stage]


def means_alone(stage: Stage) -> Outcomes:
    """The rollouts of `stage` with their means over thinking tokens; nothing is graded and no loop looked for."""
    thinking, nothing = stage.thinking, np.zeros(len(stage))
    known = {
        "problem": np.array(stage.problem, dtype=str),
        "effort": np.array(stage.effort, dtype=str),
        "index": stage.index,
        "thinking_length": thinking.lengths,
        "logprob": thinking.mean(stage.logprobs),
        "top_entropy": thinking.mean(stage.top_entropy),
    }
    return Outcomes(**{one.name: known.get(one.name, nothing) for one in fields(Outcomes)})
