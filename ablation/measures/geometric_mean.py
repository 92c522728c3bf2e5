"""Geometric mean of ratios: exp of the mean of their logarithms, so that 2 and 1/2 cancel.

Every ratio counts once; ratios of one cluster are drawn together. The scale is the logarithm throughout: the interval of the
mean logarithm, transformed back (Bland and Altman 1996, BMJ 312:1153).
"""

from __future__ import annotations

import numpy as np

from ablation.measures.bootstrap import estimate
from ablation.measures.estimate import Estimate
from ablation.plan.model import Statistics


def geometric_mean(logs: np.ndarray, cluster: np.ndarray, clusters: int, settings: Statistics, *, missing: int = 0) -> Estimate:
    """`logs` [N] of ratios, and the place of each one's cluster among the sorted names of `clusters` that have a ratio."""
    if clusters == 0:
        return Estimate(None, reason="nothing_shared", missing=missing)
    columns = np.stack([np.bincount(cluster, weights=logs, minlength=clusters), np.bincount(cluster, minlength=clusters)], axis=1)
    total, count = columns.sum(axis=0)
    return estimate(float(np.exp(total / count)), columns, lambda s: np.exp(s[:, 0] / s[:, 1]), settings, missing=missing)
