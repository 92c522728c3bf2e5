"""The parts of a token's weight that depend on logprobs: the clip of the ratio and the KL anchor.

Shapes: T tokens of one rollout. Logprobs are raw, in nats.
"""

from __future__ import annotations

import numpy as np

from ablation.plan.arms import Clip, KLAnchor


def clipped(weights_T: np.ndarray, trainer_T: np.ndarray, sampler_T: np.ndarray, clip: Clip) -> np.ndarray:
    """bool [T]: tokens at which PPO's min(w * ratio, w * clip(ratio, 1 - low, 1 + high)) is flat (arXiv 1707.06347, equation 7).

    The ratio is exp(trainer - sampler). A token whose ratio is no number is not clipped: the update must see and name it.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        ratio_T = np.exp(trainer_T.astype(np.float64) - sampler_T.astype(np.float64))
    return ((weights_T > 0) & (ratio_T > 1 + clip.high)) | ((weights_T < 0) & (ratio_T < 1 - clip.low))


def anchor(kl: KLAnchor, unit_weight: float | np.ndarray, change_T: np.ndarray) -> np.ndarray:
    """float64 [T]: the pull toward the start, before damping. `change_T` is d = logp - logp_start.

    k1: - beta * d. k3: - beta * (1 - exp(-d)), from the gradient of exp(-d) + d - 1 (Schulman, "Approximating KL Divergence",
    2020).
    `unit_weight` is what the weighting gives a token of this rollout for an advantage of 1; it counts for `unit: advantage`.
    """
    beta = kl.beta * (unit_weight if kl.unit == "advantage" else 1.0)
    return -beta * (change_T if kl.estimator == "k1" else -np.expm1(-change_T))


def damped(kl_T: np.ndarray, weights_T: np.ndarray) -> np.ndarray:
    """`kl_T`, as far as it moves the (non-negative) weights toward zero, and at most to it."""
    return np.clip(kl_T, -weights_T, 0.0)
