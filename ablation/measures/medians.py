"""A ratio of two medians over rollouts, with a percentile bootstrap over clusters.

A resample weights every rollout by how often its cluster was drawn; the median is that of the weighted rollouts (the mean of
the middle two of an even number). A median has no jackknife (Efron 1982, section 3.4), so `t` falls back on `expanded`, and
with fewer clusters than `min_clusters` there is no interval whatever the plan says of few clusters.
"""

from __future__ import annotations

import numpy as np

from ablation.measures.bootstrap import draw_counts, percentile_interval, tail
from ablation.measures.estimate import Estimate
from ablation.plan.model import Statistics

_CELLS = 4_000_000
"""Numbers in memory at a time."""


def median_ratio(
    values: tuple[np.ndarray, np.ndarray],
    clusters: tuple[np.ndarray, np.ndarray],
    names: int,
    settings: Statistics,
    *,
    missing: int = 0,
    interval: bool = True,
) -> Estimate:
    """Median of the subject's `values` [N] over the reference's [N']; `clusters`: the place of each one among all `names`."""

    def without(value: float | None, reason: str) -> Estimate:
        return Estimate(value, clusters=names, reason=reason, missing=missing)

    if not len(values[1]) or not len(values[0]):
        return without(None, "no_reference" if not len(values[1]) else "nothing_measured")
    own, other = (float(np.median(one)) for one in values)
    if other == 0:
        return without(None, "no_reference")
    if not interval:
        return without(own / other, "no_interval")
    if names < settings.min_clusters:
        return without(own / other, "few_clusters")
    counts_RK = draw_counts(names, settings)
    drawn = [resampled_medians(one, place, counts_RK) for one, place in zip(values, clusters, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = drawn[0] / drawn[1]
    method = "expanded" if settings.method == "t" else settings.method
    ends = percentile_interval(ratios, tail(settings.level, names, method))
    if ends is None:
        return without(own / other, "undefined_in_resamples")
    if ends[1] - ends[0] <= 1e-12 * abs(ends[1]):
        return without(own / other, "degenerate")
    return Estimate(own / other, *ends, settings.level, names, method=method, missing=missing)


def resampled_medians(values: np.ndarray, cluster: np.ndarray, counts_RK: np.ndarray) -> np.ndarray:
    """Median of `values` [N] in every resample, float64 [R]; NaN where none of the drawn clusters has a value."""
    order = np.argsort(values, kind="stable")
    values, cluster = values[order], cluster[order]
    medians = np.empty(len(counts_RK))
    rows = max(1, _CELLS // len(values))
    for first in range(0, len(counts_RK), rows):
        below = np.cumsum(counts_RK[first : first + rows, cluster], axis=1, dtype=np.int32)
        total = below[:, -1]
        middle = []
        for rank in ((total + 1) // 2, total // 2 + 1):
            place = (below < rank[:, None]).sum(axis=1)
            middle.append(values[np.minimum(place, len(values) - 1)])
        medians[first : first + rows] = np.where(total > 0, (middle[0] + middle[1]) / 2, np.nan)
    return medians
