"""DAPO's aggregation: the mean over all tokens of the update (arXiv 2503.14476, equation 8).

A_i / (sum of all L) per token; times R * s0 that is A_i * s0 / Lbar.
"""

from __future__ import annotations

import numpy as np

from ablation.training.weightings.rollouts import Rollouts, divided


def weigh(rollouts: Rollouts) -> np.ndarray:
    """Lbar is the mean length of the update's rollouts that are in the loss."""
    return divided(rollouts.advantages_R * rollouts.s0 * rollouts.in_loss_R.sum(), rollouts.counted_lengths_R.sum())
