"""Reward of a rollout: correct and clean first, fewer tokens second.

Shapes: R rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ablation.plan.arms import Reward


class Rewarded(Protocol):
    """What of the outcomes of R rollouts earns a reward; `rollouts.outcomes.Outcomes` has it."""

    @property
    def clean(self) -> np.ndarray: ...  # bool [R]: correct, finished and free of loops
    @property
    def looping(self) -> np.ndarray: ...  # bool [R]

    truncated: np.ndarray  # bool [R]
    thinking_length: np.ndarray  # int64 [R], tokens


def reference_lengths(cells: Sequence[str], clean_R: np.ndarray, thinking_length_R: np.ndarray) -> dict[str, float]:
    """Cell id -> mean thinking length (tokens) of its clean rollouts; a cell without a clean rollout is left out."""
    lengths: dict[str, list[int]] = {}
    for cell, clean, length in zip(cells, clean_R, thinking_length_R, strict=True):
        if clean:
            lengths.setdefault(cell, []).append(int(length))
    return {cell: sum(values) / len(values) for cell, values in lengths.items()}


def rewards(
    cells: Sequence[str], outcomes: Rewarded, reference: dict[str, float], settings: Reward, *, truncation_penalty: float = 0.0
) -> np.ndarray:
    """Float64 [R]: 1 + bonus * clip((L_ref - L) / L_ref, -1, 1) for a clean rollout (correct, finished, no loop), otherwise 0,
    less the penalties of a looping and of a truncated one.

    1 where the cell has no reference length, or a reference of no thinking at all.
    """
    rewards_R = -settings.loop_penalty * outcomes.looping - truncation_penalty * outcomes.truncated + 0.0  # 0.0, never -0.0
    for row, (cell, clean, length) in enumerate(zip(cells, outcomes.clean, outcomes.thinking_length, strict=True)):
        if clean:
            expected = reference.get(cell, 0.0)
            saved = min(1.0, max(-1.0, (expected - float(length)) / expected)) if expected > 0 else 0.0
            rewards_R[row] = 1.0 + settings.length_bonus * saved
    return rewards_R
