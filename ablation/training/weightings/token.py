"""A_i * s0 / Lbar_g: the study's control, and what a loss that is summed over the tokens of a group does."""

from __future__ import annotations

import numpy as np

from ablation.training.weightings.rollouts import Rollouts, divided


def weigh(rollouts: Rollouts) -> np.ndarray:
    """A rollout's total grows with its length; Lbar_g is the mean length of its group."""
    return divided(rollouts.advantages_R * rollouts.s0 * rollouts.group_counts_R, rollouts.group_lengths_R)
