"""Advantage of a rollout: its reward against a baseline from its group (the rollouts of one cell).

Shapes: R rollouts, n rollouts of a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def group_rows(cells: Sequence[str]) -> dict[str, np.ndarray]:
    """Cell id -> indices of its rollouts, in order of first appearance."""
    rows: dict[str, list[int]] = {}
    for row, cell in enumerate(cells):
        rows.setdefault(cell, []).append(row)
    return {cell: np.array(members) for cell, members in rows.items()}


def advantages(
    groups: dict[str, np.ndarray], rewards_R: np.ndarray, counted_R: np.ndarray, *, baseline: str = "mean", scale: str = "none"
) -> tuple[np.ndarray, list[str]]:
    """(float64 [R] advantages, cells without a signal).

    Only rollouts in `counted_R` form the baseline and have an advantage; the others get 0.

    mean            r_i - mean of the group
    leave_one_out   r_i - mean of the group's others, which is n / (n - 1) times the above (RLOO, arXiv 2402.14740)
    none            r_i

    `scale` "std" divides by the standard deviation (n - 1) of the group's rewards. A group whose counted rewards are all
    equal, or that has one counted rollout or none, has no signal: exactly 0, decided by max == min and never by a rounded
    spread. Without a baseline it has none if every reward is 0. Means are correctly rounded, so a group's sum is 0 to the
    last bit or two.
    """
    advantages_R = np.zeros(len(rewards_R))
    no_signal = []
    for cell, rows in groups.items():
        counted = rows[counted_R[rows]]
        values = rewards_R[counted]
        if not values.any() if baseline == "none" else len(values) < 2 or values.max() == values.min():
            no_signal.append(cell)
            continue
        if baseline == "none":
            advantages_R[counted] = values
            continue
        deviations = values - math.fsum(values) / len(values)
        if baseline == "leave_one_out":
            deviations = deviations * (len(values) / (len(values) - 1))
        if scale == "std":
            spread = np.std(values, ddof=1)
            if spread == 0.0:  # differences whose squares are too small for a float
                no_signal.append(cell)
                continue
            deviations = deviations / spread
        advantages_R[counted] = deviations
    return advantages_R, no_signal
