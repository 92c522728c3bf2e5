"""The high-entropy tokens alone: DAPO's mean, but only the fifth of the update's tokens with the highest entropy count.

A_i * (H_t >= tau) / (sum of all L) per token (arXiv 2506.01939, with its 20% of the tokens); times R * s0 that is
A_i * s0 * (H_t >= tau) / Lbar. The divisor has all tokens, as in the paper. H_t is what the sampler stored, the entropy of the
most likely tokens; the paper takes the trained policy's, over the whole vocabulary.
"""

from __future__ import annotations

import math

import numpy as np

from ablation.training.weightings import dapo
from ablation.training.weightings.rollouts import Rollouts

SHARE = 0.2


def weigh(rollouts: Rollouts) -> list[np.ndarray]:
    """Tokens with the same entropy as the last one that counts do, too. Raises ValueError without the sampler's entropies."""
    if len(rollouts.entropy) != len(rollouts.lengths_R):
        raise ValueError("the weighting `high_entropy` needs the sampler's entropy of every token")
    tau = threshold([own for own, counted in zip(rollouts.entropy, rollouts.in_loss_R, strict=True) if counted])
    return [weight * (own_T >= tau) for weight, own_T in zip(dapo.weigh(rollouts), rollouts.entropy, strict=True)]


def threshold(entropy: list[np.ndarray]) -> float:
    """The entropy that the highest `SHARE` of all tokens, rounded up, reach; infinite if there are none."""
    values = np.sort(np.concatenate([np.zeros(0), *entropy]))[::-1]
    return float(values[math.ceil(SHARE * len(values)) - 1]) if len(values) else math.inf
