"""A ratio of two models' pooled ratios: (a / b of the subject) / (a / b of the reference), each a sum over all rollouts.

Paired: a resample draws the same clusters for both models. Cochran 1977, chapter 6: a ratio of sums weights every rollout
equally, which a mean of the clusters' ratios does not.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ablation.measures.bootstrap import estimate
from ablation.measures.estimate import Estimate
from ablation.plan.model import Statistics


def ratio_of_sums(columns_K4: np.ndarray, settings: Statistics, *, reason: str = "no_reference", missing: int = 0) -> Estimate:
    """(A / B) / (C / D) from sums by cluster of A, B, C, D, whole numbers in float64 [K, 4]. Exact in its value.

    `reason`: what is said where B, C or D is nothing, so that the ratio is undefined.
    """
    a, b, c, d = (int(total) for total in columns_K4.sum(axis=0))
    if not (b and c and d):
        return Estimate(None, clusters=len(columns_K4), reason=reason, missing=missing)
    value = Fraction(a * d, b * c)
    return estimate(value, columns_K4, pooled_ratio, settings, missing=missing)


def sums_ratio(columns_K2: np.ndarray, settings: Statistics, *, missing: int = 0) -> Estimate:
    """A / C from sums by cluster of A (the subject's) and C (the reference's), whole numbers in float64 [K, 2]."""
    a, c = (int(total) for total in columns_K2.sum(axis=0))
    if not c:
        return Estimate(None, clusters=len(columns_K2), reason="no_reference", missing=missing)
    return estimate(Fraction(a, c), columns_K2, lambda s: s[:, 0] / s[:, 1], settings, missing=missing)


def pooled_ratio(sums_RM: np.ndarray) -> np.ndarray:
    """(A / B) / (C / D) of sums [R, 4]."""
    return (sums_RM[:, 0] / sums_RM[:, 1]) / (sums_RM[:, 2] / sums_RM[:, 3])
