"""Whether a start that is sampled again on a set, in the same seeds, is the start that was sampled before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ablation.errors import IntegrityError
from ablation.rollouts.stage import Stage


@dataclass(frozen=True)
class Drift:
    """A reference against an earlier one of the same set."""

    against: str
    """The subject of the comparison that the earlier one was sampled for."""
    rollouts: int
    """Of each of the two; all have a partner."""
    correct: int | None
    """None where nothing on the set is correct or not: agent turns, safety prompts."""
    correct_before: int | None
    flagged: bool
    """Correct rollouts moved by `evaluation.drift` or more."""
    identical: int
    """Pairs of one seed whose token ids are all equal."""

    @property
    def change(self) -> int | None:
        """Correct rollouts more than before."""
        return None if self.correct is None or self.correct_before is None else self.correct - self.correct_before

    @property
    def identical_share(self) -> float:
        return self.identical / self.rollouts

    def as_json(self) -> dict[str, Any]:
        return {
            "against": self.against,
            "rollouts": self.rollouts,
            "correct": self.correct,
            "correct_before": self.correct_before,
            "change": self.change,
            "flagged": self.flagged,
            "identical": self.identical,
            "identical_share": self.identical_share,
        }

    def in_words(self) -> str:
        """One line for a terminal."""
        same = f"{self.identical} of {self.rollouts} rollouts of one seed are the same to the last token"
        if self.change is None:
            return f"the start, against the one that was sampled for {self.against}: {same}"
        flag = " DRIFT" if self.flagged else ""
        moved = f"{self.correct} correct, {self.correct_before} before ({self.change:+d}){flag}"
        return f"the start, against the one that was sampled for {self.against}: {moved}; {same}"


def drift(now: Stage, before: Stage, correct: tuple[int, int] | None, *, limit: int, against: str) -> Drift:
    """`correct`: rollouts of the two that are, or None. `limit`: the plan's `evaluation.drift`, which itself raises the flag."""
    own, other = correct if correct is not None else (None, None)
    flagged = own is not None and other is not None and abs(own - other) >= limit
    return Drift(against, len(now), own, other, flagged, identical_rollouts(now, before))


def identical_rollouts(one: Stage, other: Stage) -> int:
    """How many rollouts of the two stages have the same token ids as their partner: same cell, index and seed.

    Raises `IntegrityError` unless each has one.
    """
    rows, others = one.by_key, other.by_key
    keys = [
        list(
            zip(np.array(stage.problem)[order], np.array(stage.effort)[order], stage.index[order], stage.seed[order], strict=True)
        )
        for stage, order in ((one, rows), (other, others))
    ]
    if keys[0] != keys[1]:
        where = f"{one.info.stage}: {one.info.arm} and {other.info.arm}"
        raise IntegrityError(f"{where} were not sampled on the same problems in the same seeds, so they cannot be compared")
    pairs = zip(rows.tolist(), others.tolist(), strict=True)
    return sum(np.array_equal(_ids(one, row), _ids(other, partner)) for row, partner in pairs)


def _ids(stage: Stage, row: int) -> np.ndarray:
    return stage.token_ids[stage.offsets[row] : stage.offsets[row + 1]]
