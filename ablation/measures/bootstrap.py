"""Percentile bootstrap over clusters (cells, or problems) for statistics that are functions of sums over clusters.

Shapes: K clusters, M columns, R resamples. A resample draws K clusters with replacement, and every rollout of a drawn cluster
comes with it: rollouts of one cell are not independent (Davison and Hinkley 1997, section 3.8). Because the statistic needs
sums only, all resamples are one product of a count matrix [R, K] and the clusters' sums [K, M].

The ends of an interval are quantiles of the resampled statistic (Efron and Tibshirani 1993, section 13.3): at (1 - level) / 2
and its mirror for `percentile`. That is too narrow for few clusters, by the factor sqrt((K - 1) / K) and by a normal instead of
a t quantile. `expanded` takes the quantiles at Phi(-sqrt(K / (K - 1)) * t(tail; K - 1)) instead, which repairs both for a mean
(Hesterberg 2015, What teachers should know about the bootstrap, section 5.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ablation.measures.estimate import REASONS, Estimate
from ablation.measures.jackknife import LEAST, jackknife_interval
from ablation.plan.model import Statistics

__all__ = ["REASONS", "Estimate", "estimate", "interval_method", "resample", "tail"]

_BLOCK = 500
_DRAWS = 1 << 15
"""Clusters that are drawn and counted together, in the processor's cache."""
Statistic = Callable[[np.ndarray], np.ndarray]
"""Sums [R, M] -> numbers [R]."""


def estimate(
    value: Fraction | float,
    columns_KM: np.ndarray,
    statistic: Statistic,
    settings: Statistics,
    *,
    log: bool = True,
    estimand: str | None = None,
    missing: int = 0,
) -> Estimate:
    """`value` with the interval of `statistic`, which maps sums [R, M] to numbers [R]. `log`: it is positive, a ratio.

    The rows of `columns_KM` must be in an order that depends on the clusters' names alone.
    """
    clusters = len(columns_KM)

    def without(reason: str) -> Estimate:
        return Estimate(value, clusters=clusters, reason=reason, estimand=estimand, missing=missing)

    method = interval_method(clusters, settings)
    if method is None:
        return without("few_clusters")
    if method == "t":
        ends = jackknife_interval(columns_KM, statistic, settings.level, log=log)
    else:
        draws_R = resample(columns_KM, statistic, settings)
        ends = percentile_interval(draws_R, tail(settings.level, clusters, method))
    if ends is None:
        return without("undefined_in_resamples")
    low, high = ends
    # equal draws may differ in the last bit of a float, because sums are rounded
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        return without("degenerate")
    return Estimate(value, low, high, settings.level, clusters, method=method, estimand=estimand, missing=missing)


def interval_method(clusters: int, settings: Statistics) -> str | None:
    """How the plan makes an interval from so many clusters: a key of `METHODS`, or None if it makes none."""
    if clusters >= settings.min_clusters:
        return settings.method if settings.method != "t" or clusters >= LEAST else None
    return "t" if settings.few_clusters == "t" and clusters >= LEAST else None


def resample(columns_KM: np.ndarray, statistic: Statistic, settings: Statistics) -> np.ndarray:
    """The statistic in every resample, float64 [R]; not finite where it is undefined."""
    sums_RM = _resampled_sums(columns_KM, settings.resamples, settings.seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        return statistic(sums_RM)


def percentile_interval(draws_R: np.ndarray, share: float) -> tuple[float, float] | None:
    """The quantiles at `share` and 1 - `share`; None if a draw is not finite."""
    if not np.isfinite(draws_R).all():
        return None
    low, high = np.quantile(draws_R, [share, 1 - share])
    return float(low), float(high)


def tail(level: float, clusters: int, method: str) -> float:
    """Share of the resamples below the lower end of an interval of `level`."""
    share = (1 - level) / 2
    if method != "expanded" or clusters < LEAST:
        return share
    from scipy.special import ndtr, stdtrit

    return float(ndtr(math.sqrt(clusters / (clusters - 1)) * stdtrit(clusters - 1, share)))


def draw_counts(clusters: int, settings: Statistics) -> np.ndarray:
    """How often each resample draws each cluster, uint16 [R, K]; rows sum to K."""
    return _counts(clusters, settings.resamples, settings.seed)


def _resampled_sums(columns_KM: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Float64 [R, M]. In blocks that stay in the processor's cache and below the size at which BLAS starts threads."""
    counts_RK = _counts(len(columns_KM), resamples, seed)
    sums_RM = np.empty((resamples, columns_KM.shape[1]))
    floats_BK = np.empty((min(_BLOCK, resamples), len(columns_KM)))
    for first in range(0, resamples, _BLOCK):
        rows = min(_BLOCK, resamples - first)
        floats_BK[:rows] = counts_RK[first : first + rows]
        sums_RM[first : first + rows] = floats_BK[:rows] @ columns_KM
    return sums_RM


@lru_cache(maxsize=4)
def _counts(clusters: int, resamples: int, seed: int) -> np.ndarray:
    """How often each resample draws each cluster, uint16 [R, K]; rows sum to K. All ratios of a study share these draws."""
    generator = np.random.default_rng(seed)
    counts_RK = np.empty((resamples, clusters), dtype=np.uint16)
    together = max(1, _DRAWS // clusters)  # how many are drawn in one call does not change what is drawn
    for first in range(0, resamples, together):
        rows = min(together, resamples - first)
        drawn = generator.integers(0, clusters, (rows, clusters))
        drawn += np.arange(rows)[:, None] * clusters
        counts_RK[first : first + rows] = np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters)
    return counts_RK
