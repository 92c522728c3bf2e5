"""A_i * s0 / L_i: a rollout's total is its advantage times s0, whatever its length."""

from __future__ import annotations

import numpy as np

from ablation.training.weightings.rollouts import Rollouts, divided


def weigh(rollouts: Rollouts) -> np.ndarray:
    """The study's per-rollout weighting."""
    return divided(rollouts.advantages_R * rollouts.s0, rollouts.lengths_R)
