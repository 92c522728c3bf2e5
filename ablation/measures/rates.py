"""Shares of rollouts: a count over the rollouts of a stage, with the interval that holds for rare events, too.

The share p is `pooled` (all counted of all rollouts) or `mean_of_clusters` (the mean of the clusters' own shares), as the plan
says; the two differ where clusters have different numbers of rollouts. Its variance v is estimated between clusters: for pooled
K / (K - 1) * sum (x_k - p m_k)^2 / M^2 (Cochran 1977, section 9A.2), for the other that of a mean. The rollouts are worth
p (1 - p) / v independent ones, at most as many as there are, and the interval is Wilson's score interval for so many, with the
t quantile of K - 1 degrees of freedom (Korn and Graubard 1998; Franco, Little, Louis and Slud 2019). A percentile bootstrap of
a rare count covers far less than its level: the clusters that were drawn cannot show what rarer ones would.

None or all of the rollouts: no interval, but an exact bound; see `exact_bounds.agreeing_clusters`.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

import numpy as np

from ablation.measures.bootstrap import interval_method
from ablation.measures.clusters import Clusters, missing_rows
from ablation.measures.estimate import Estimate
from ablation.measures.exact_bounds import agreeing_clusters, wilson
from ablation.plan.measures import ANSWER_COUNTS
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes

RATES = (*ANSWER_COUNTS, "correct_rate")


def rates(
    outcomes: Outcomes, settings: Statistics, cluster: str = "cell", names: Collection[str] | None = None
) -> dict[str, Estimate]:
    """Measure -> share of rollouts, for `names` (default: all of `RATES`). Rows that are missing are counted in each."""
    wanted = [name for name in RATES if names is None or name in names]
    if not wanted:
        return {}
    clusters, missing = Clusters.by(outcomes, cluster), len(missing_rows(outcomes))
    sizes = clusters.sizes
    return {
        name: rate(
            clusters.sums(getattr(outcomes, "correct" if name == "correct_rate" else name)), sizes, settings, missing=missing
        )
        for name in wanted
    }


def correct_rate(outcomes: Outcomes, settings: Statistics, cluster: str = "cell") -> Estimate:
    """Share of correct rollouts, in the plan's estimand."""
    return rates(outcomes, settings, cluster, ("correct_rate",))["correct_rate"]


def rate(counts_K: np.ndarray, sizes_K: np.ndarray, settings: Statistics, *, missing: int = 0) -> Estimate:
    """The share with `counts_K` of `sizes_K` rollouts by cluster (whole numbers; sizes above 0)."""
    clusters, estimand = len(sizes_K), settings.estimand
    if not clusters:
        return Estimate(None, reason="nothing_measured", estimand=estimand, missing=missing)
    value = share(counts_K, sizes_K, estimand)
    p = float(value)
    agree, equal = value in (0, 1), (sizes_K == sizes_K[0]).all()
    bound = agreeing_clusters(p, clusters, settings.level, 0.0, 1.0) if agree and equal else None
    if interval_method(clusters, settings) is None or agree:
        reason = "few_clusters" if interval_method(clusters, settings) is None else "degenerate"
        level = None if bound is None else settings.level
        return Estimate(value, None, None, level, clusters, reason, estimand=estimand, bound=bound, missing=missing)
    from scipy.special import stdtrit

    trials = effective_rollouts(counts_K, sizes_K, p, estimand)
    low, high = wilson(p, trials, float(stdtrit(clusters - 1, (1 + settings.level) / 2)))
    return Estimate(value, low, high, settings.level, clusters, method="wilson", estimand=estimand, missing=missing)


def share(counts_K: np.ndarray, sizes_K: np.ndarray, estimand: str) -> Fraction:
    """Exact: 8 of 8 and 0 of 2 are 4/5 pooled, and 1/2 as a mean of clusters."""
    if estimand == "pooled":
        return Fraction(int(counts_K.sum()), int(sizes_K.sum()))
    return sum(map(Fraction, map(int, counts_K), map(int, sizes_K)), Fraction()) / len(sizes_K)


def effective_rollouts(counts_K: np.ndarray, sizes_K: np.ndarray, p: float, estimand: str) -> float:
    """How many independent rollouts would tell as much of the share `p`, which is neither 0 nor 1: at most all of them."""
    clusters, rollouts = len(sizes_K), float(sizes_K.sum())
    apart = (counts_K - p * sizes_K) / rollouts if estimand == "pooled" else (counts_K / sizes_K - p) / clusters
    variance = clusters / (clusters - 1) * float((apart**2).sum())
    return min(rollouts, p * (1 - p) / variance) if variance > 0 else rollouts
