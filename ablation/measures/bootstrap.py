"""Percentile bootstrap over clusters (cells, or problems) for statistics that are functions of sums over clusters.

Shapes: K clusters, M columns, R resamples. A resample draws K clusters with replacement, and every rollout of a drawn cluster
comes with it: rollouts of one cell are not independent (Davison and Hinkley 1997, section 3.8). Because the statistic needs
sums only, all resamples are one product of a count matrix [R, K] and the clusters' sums [K, M].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ablation.plan.model import Statistics

REASONS = {
    "zero_correct": "a model has no correct answer, so the ratio is undefined",
    "no_reference": "the reference has nothing to divide by, so the ratio is undefined",
    "nothing_shared": "there is no cell or pair that both models solved",
    "few_clusters": "too few clusters for an interval",
    "degenerate": "all resamples give the same number, so the interval would be a false certainty",
    "undefined_in_resamples": "the ratio is undefined in some resamples",
    "no_interval": "this measure has no interval",
}
"""Why an estimate or its interval is missing."""

_BLOCK = 500


@dataclass(frozen=True)
class Estimate:
    """A number, and its percentile interval if there is one.

    `value` is None exactly when the number is undefined; `low` and `high` are None exactly when `reason` is set.
    """

    value: Fraction | float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    clusters: int = 0
    reason: str | None = None
    """A key of `REASONS`."""

    def as_json(self) -> dict:
        value = None if self.value is None else float(self.value)
        named = {"value": value, "low": self.low, "high": self.high, "level": self.level}
        return named | {"clusters": self.clusters, "reason": self.reason}


def estimate(
    value: Fraction | float, columns_KM: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], settings: Statistics
) -> Estimate:
    """`value` with the interval of `statistic`, which maps sums [R, M] to numbers [R].

    The rows of `columns_KM` must be in an order that depends on the clusters' names alone.
    """
    clusters = len(columns_KM)
    if clusters < settings.min_clusters:
        return Estimate(value, clusters=clusters, reason="few_clusters")
    sums_RM = _resampled_sums(columns_KM, settings.resamples, settings.seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws_R = statistic(sums_RM)
    if not np.isfinite(draws_R).all():
        return Estimate(value, clusters=clusters, reason="undefined_in_resamples")
    tail = (1 - settings.level) / 2
    low, high = np.quantile(draws_R, [tail, 1 - tail])
    # equal draws may differ in the last bit of a float, because sums are rounded
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        return Estimate(value, clusters=clusters, reason="degenerate")
    return Estimate(value, float(low), float(high), settings.level, clusters)


def _resampled_sums(columns_KM: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Float64 [R, M]. In blocks that stay in the processor's cache and below the size at which BLAS starts threads."""
    counts_RK = _counts(len(columns_KM), resamples, seed)
    sums_RM = np.empty((resamples, columns_KM.shape[1]))
    for first in range(0, resamples, _BLOCK):
        block = slice(first, first + _BLOCK)
        sums_RM[block] = counts_RK[block].astype(np.float64) @ columns_KM
    return sums_RM


@lru_cache(maxsize=8)
def _counts(clusters: int, resamples: int, seed: int) -> np.ndarray:
    """How often each resample draws each cluster, uint16 [R, K]; rows sum to K. All ratios of a study share these draws."""
    generator = np.random.default_rng(seed)
    counts_RK = np.empty((resamples, clusters), dtype=np.uint16)
    for first in range(0, resamples, _BLOCK):
        rows = min(_BLOCK, resamples - first)
        drawn = generator.integers(0, clusters, (rows, clusters))
        drawn += np.arange(rows)[:, None] * clusters
        counts_RK[first : first + rows] = np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters)
    return counts_RK
