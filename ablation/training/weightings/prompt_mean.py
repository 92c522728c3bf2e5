"""The prompt mean: the mean over the tokens of each group, then the mean over groups (arXiv 2510.13786, "prompt average").

A_i / (G * L_g) per token; times R * s0 that is A_i * s0 * R / (G * L_g). Where every group has as many rollouts in the loss, that
is `token`.
"""

from __future__ import annotations

import numpy as np

from ablation.training.weightings.rollouts import Rollouts, divided


def weigh(rollouts: Rollouts) -> np.ndarray:
    """G counts the groups that have a rollout in the loss."""
    groups = len(np.unique(rollouts.group_R[rollouts.in_loss_R]))
    scale = rollouts.s0 * rollouts.in_loss_R.sum() / max(groups, 1)
    return divided(rollouts.advantages_R * scale, rollouts.group_lengths_R)
