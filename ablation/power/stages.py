"""Simulated stages: counts of a sweep or readout, for many studies at once.

Shapes: B studies, K cells, n rollouts a cell, 12 kinds, 6 counts in the order of `MEMBERS`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablation.power.kinds import COUNTS_OF_KINDS, KINDS, MEMBERS
from ablation.power.rates import Rates

Measures = dict[str, np.ndarray]
"""Measure -> [B]: int64 for counts, float64 for means over rollouts."""


@dataclass(frozen=True)
class Luck:
    """What chance alone decides in one stage: shared or drawn anew, it is never the model's doing."""

    rollouts_BKn: np.ndarray  # float32 in [0, 1)
    means: dict[str, np.ndarray]  # measure -> standard normal [B]

    @staticmethod
    def draw(rates: Rates, studies: int, generator: np.random.Generator) -> Luck:
        shape = (studies, len(rates.parameters_KC), rates.per_cell)
        return Luck(
            generator.random(shape, dtype=np.float32), {name: generator.standard_normal(studies) for name in sorted(rates.means)}
        )

    def partner(self, rates: Rates, correlation: float, generator: np.random.Generator) -> Luck:
        """Luck of a readout in the same seeds: each rollout keeps its partner's luck with probability `correlation`.

        So, between equal models, any two indicators of one rollout and its partner have that correlation.
        """
        own = Luck.draw(rates, len(self.rollouts_BKn), generator)
        if correlation == 0:
            return own
        kept = generator.random(self.rollouts_BKn.shape, dtype=np.float32) < correlation
        rest = np.sqrt(1 - correlation**2)
        means = {name: correlation * value + rest * own.means[name] for name, value in self.means.items()}
        return Luck(np.where(kept, self.rollouts_BKn, own.rollouts_BKn), means)


def measure_stage(rates: Rates, rates_BKC: np.ndarray, luck: Luck, shifts: dict[str, np.ndarray | float]) -> Measures:
    """Measures of a stage. `shifts`: change of a measure that is a mean over rollouts, [B], in its unit."""
    measures: Measures = dict(zip(MEMBERS, counts(rates_BKC, luck.rollouts_BKn).T, strict=True))
    for name, (level, sd, _) in rates.means.items():
        # the mean of `total` rollouts; its level in a sweep drops out of every change, so an unknown one is 0
        measures[name] = (level or 0.0) + shifts.get(name, 0.0) + luck.means[name] * (sd / np.sqrt(rates.total))
    return measures


def counts(rates_BKC: np.ndarray, luck_BKn: np.ndarray) -> np.ndarray:
    """Counts [B, 6] of rollouts whose kind is the first whose cumulated rate lies above their luck."""
    studies, rollouts = len(luck_BKn), luck_BKn[0].size
    possible = np.flatnonzero(rates_BKC.any(axis=(0, 1)))
    below = np.cumsum(rates_BKC[..., possible[:-1]], axis=-1, dtype=np.float32)
    kinds = np.zeros((studies, KINDS), dtype=np.int64)
    so_far = np.zeros(studies, dtype=np.int64)
    for place, one in enumerate(possible[:-1]):
        reached = (luck_BKn < below[..., place, None]).reshape(studies, rollouts).sum(axis=1, dtype=np.int32)
        kinds[:, one] = reached - so_far
        so_far = reached
    kinds[:, possible[-1]] = rollouts - so_far
    return kinds @ COUNTS_OF_KINDS
