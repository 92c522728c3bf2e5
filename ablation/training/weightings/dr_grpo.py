"""Dr. GRPO's aggregation: a sum over tokens with a constant divisor (arXiv 2503.20783, section 3.2).

A_i / (R * max_tokens) per token; times R * s0 that is A_i * s0 / max_tokens.
"""

from __future__ import annotations

import numpy as np

from ablation.training.weightings.rollouts import Rollouts


def weigh(rollouts: Rollouts) -> np.ndarray:
    """Every token of every rollout weighs the same per unit of advantage, in every update."""
    return rollouts.advantages_R * rollouts.s0 / rollouts.max_tokens
