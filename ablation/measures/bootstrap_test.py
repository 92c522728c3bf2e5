"""p-value of a cluster bootstrap: the level at which the one-sided interval ends at no difference.

Share q of the resamples at or beyond no difference, counting the sample itself: q = (1 + count) / (R + 1), so it is never 0
(Davison and Hinkley 1997, section 4.2). For `percentile` p = q; for `expanded` p is the tail whose expanded quantile is q,
T(sqrt((K - 1) / K) * Phi^-1(q); K - 1), the inverse of `bootstrap.tail`.
"""

from __future__ import annotations

import math

import numpy as np


def bootstrap_test(draws_R: np.ndarray, null: float, clusters: int, method: str, side: str) -> float | None:
    """None where a draw is undefined, or where all draws agree on something else than no difference."""
    if not np.isfinite(draws_R).all():
        return None
    low, high = draws_R.min(), draws_R.max()
    if high - low <= 1e-12 * max(abs(low), abs(high)) and not low <= null <= high:
        return None
    at_null = np.abs(draws_R - null) <= 1e-12 * max(abs(low), abs(high))  # a sum of shares that cancel is rounded
    greater = _tail(float((at_null | (draws_R < null)).sum()), len(draws_R), clusters, method)
    less = _tail(float((at_null | (draws_R > null)).sum()), len(draws_R), clusters, method)
    return {"greater": greater, "less": less, "two_sided": min(1.0, 2 * min(greater, less))}[side]


def _tail(count: float, resamples: int, clusters: int, method: str) -> float:
    from scipy.special import ndtri, stdtr

    share = (1 + count) / (resamples + 1)
    if method == "percentile" or share >= 1:
        return share
    return float(stdtr(clusters - 1, math.sqrt((clusters - 1) / clusters) * ndtri(share)))
