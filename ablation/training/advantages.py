"""Advantage of a rollout: its reward minus the mean reward of its group (the rollouts of one cell).

No division by the standard deviation. Shapes: R rollouts, G groups.
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


def advantages(groups: dict[str, np.ndarray], rewards_R: np.ndarray, counted_R: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """(float64 [R] advantages, cells without a signal).

    Only rollouts in `counted_R` form the baseline and have an advantage; the others get 0. A group whose counted
    rewards are all equal, or that has one counted rollout or none, has no signal: exactly 0, decided by max == min
    and never by a rounded spread. The baseline is a correctly rounded mean, so a group's sum is 0 to the last bit or two.
    """
    advantages_R = np.zeros(len(rewards_R))
    no_signal = []
    for cell, rows in groups.items():
        counted = rows[counted_R[rows]]
        values = rewards_R[counted]
        if len(values) < 2 or values.max() == values.min():
            no_signal.append(cell)
            continue
        advantages_R[counted] = values - math.fsum(values) / len(values)
    return advantages_R, no_signal
