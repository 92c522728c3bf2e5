"""Bounds of a share of independent trials, exact and by Wilson's score; and what agreeing clusters do say.

x of n trials succeeded. Clopper and Pearson 1934: the ends are the shares under which x or more (x or fewer) have probability
(1 - level) / 2, quantiles of beta distributions. Wilson 1927: the shares that a score test at the level does not reject.
"""

from __future__ import annotations

import math


def clopper_pearson(successes: float, trials: float, level: float) -> tuple[float, float]:
    """Exact two-sided bounds of a share; 0 of 50 at 0.95: 0 and 0.0711."""
    from scipy.special import betaincinv

    tail, failures = (1 - level) / 2, trials - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - tail)) if failures > 0 else 1.0
    return low, high


def wilson(share: float, trials: float, quantile: float) -> tuple[float, float]:
    """Score bounds of a share that was seen in `trials`, for a standardised distance `quantile` (1.645 for 90%)."""
    square = quantile * quantile / trials
    centre = (share + square / 2) / (1 + square)
    half = quantile / (1 + square) * math.sqrt(share * (1 - share) / trials + square / (4 * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def agreeing_clusters(value: float, clusters: int, level: float, least: float, most: float) -> tuple[float, float]:
    """Where the mean over all clusters lies if `clusters` equally large ones all gave `value`, which is from `least` to `most`.

    At the level, at most the share u = clopper_pearson(0, clusters) of clusters gives something else, and that is `least` or
    `most` at worst. For 0 truncated rollouts in 50 cells of one rollout: 0 to 0.0711 at 0.95.
    """
    other = clopper_pearson(0, clusters, level)[1]
    return value + other * (least - value), value + other * (most - value)
