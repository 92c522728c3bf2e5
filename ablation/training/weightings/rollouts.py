"""What a weighting sees of an update."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Rollouts:
    """The R rollouts of one update, as one arm counts them. Every array `_R` has length R."""

    advantages_R: np.ndarray
    """float64; 0 for a rollout that is out of the loss."""
    lengths_R: np.ndarray
    """Weighted tokens of each rollout."""
    group_R: np.ndarray
    """Number of its group (the rollouts of one cell), from 0."""
    in_loss_R: np.ndarray
    """bool: counts in divisors. False for a rollout that the arm masks, drops or handles apart."""
    s0: float
    """The plan's fixed scale, in tokens."""
    max_tokens: int
    """The plan's cap on sampled tokens."""
    entropy: list[np.ndarray] = field(default_factory=list)
    """R arrays [L_i]: the sampler's top-k entropy at each weighted token, nats, as it is stored with the rollouts."""

    @cached_property
    def counted_lengths_R(self) -> np.ndarray:
        """`lengths_R`, with 0 for a rollout that is out of the loss."""
        return np.where(self.in_loss_R, self.lengths_R, 0)

    @cached_property
    def group_counts_R(self) -> np.ndarray:
        """Rollouts in the loss of the rollout's group."""
        return np.bincount(self.group_R, weights=self.in_loss_R)[self.group_R]

    @cached_property
    def group_lengths_R(self) -> np.ndarray:
        """Weighted tokens in the loss of the rollout's group, together."""
        return np.bincount(self.group_R, weights=self.counted_lengths_R)[self.group_R]


def divided(value_R: np.ndarray, divisor: np.ndarray | float) -> np.ndarray:
    """value / divisor, and 0 where the divisor is 0: nothing that could be weighed is there."""
    divisor_R = np.broadcast_to(np.asarray(divisor, dtype=np.float64), value_R.shape)
    return np.divide(value_R, divisor_R, out=np.zeros(value_R.shape), where=divisor_R != 0)
