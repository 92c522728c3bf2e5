"""How far two models' logprobs of the same tokens are apart; without torch."""

from __future__ import annotations

import numpy as np


def mismatch(trainer_logprobs: np.ndarray, sampler_logprobs: np.ndarray) -> dict[str, float]:
    """How far the trainer's logprobs are from the sampler's on the same tokens (nats), over the tokens where both are finite.

    `k3` is the estimator exp(d) - d - 1 of KL(sampler || trainer) with d = trainer - sampler
    (Schulman, "Approximating KL Divergence", 2020).
    """
    difference = trainer_logprobs.astype(np.float64) - sampler_logprobs.astype(np.float64)
    difference = difference[np.isfinite(difference)]
    names = ("mean_absolute", "p99_absolute", "share_ratio_outside_10_percent", "k3")
    if not len(difference):
        return dict.fromkeys(names, 0.0)
    absolute, ratio = np.abs(difference), np.exp(difference)
    values = (absolute.mean(), np.quantile(absolute, 0.99), (np.abs(ratio - 1) > 0.1).mean(), (ratio - difference - 1).mean())
    return {name: float(value) for name, value in zip(names, values, strict=True)}
