"""Subject minus reference, paired: each rollout against its partner in the same cell and with the same seed.

The differences of pairs are summed by cluster, and clusters are what varies (Miller 2024, Adding error bars to evals, sections
2.2 and 4; Cameron and Miller 2015). Counts: the change of the count. Means (logprob and such): the difference of the two means
over rollouts with thinking. The interval is the plan's: a bootstrap that draws clusters with the pairs in them, or t.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ablation.measures.bootstrap import estimate
from ablation.measures.clusters import Pair, partners
from ablation.measures.estimate import Estimate
from ablation.measures.exact_bounds import agreeing_clusters
from ablation.measures.rates import share
from ablation.plan.model import Statistics
from ablation.plan.rules import COUNT_MEASURES, LOOP_COUNTS, PAIRED_MEASURES
from ablation.rollouts.means import mean
from ablation.rollouts.outcomes import Outcomes

MEANS = {"logprob": "logprob", "top20_entropy": "top_entropy", "top20_mass": "top_mass"}
"""Measure that is a mean over rollouts with thinking -> its column in `Outcomes`."""


def changes(
    subject: Outcomes,
    reference: Outcomes,
    settings: Statistics,
    cluster: str = "cell",
    names: Collection[str] | None = None,
) -> dict[str, Estimate]:
    """Measure -> subject minus reference, for `names` (default: all of `PAIRED_MEASURES`).

    Raises `IncompleteError` that names the rollouts without a partner, and `IntegrityError` for other clusters.
    """
    wanted = [name for name in PAIRED_MEASURES if names is None or name in names]
    if not wanted:
        return {}
    pair = Pair.by(*partners(subject, reference), cluster)
    return {name: change(pair, name, settings) for name in wanted}


def change(pair: Pair, name: str, settings: Statistics) -> Estimate:
    """The change of one of `PAIRED_MEASURES` between models whose rows are partners."""
    if name in MEANS:
        return _of_means(pair, MEANS[name], settings)
    if name == "correct_rate":
        return _of_rates(pair, settings)
    assert name in COUNT_MEASURES + LOOP_COUNTS
    differences = getattr(pair.subject, name).astype(np.int64) - getattr(pair.reference, name)
    sums, sizes, rollouts = pair.of_subject.sums(differences), pair.of_subject.sizes, len(pair.subject)
    value, columns = Fraction(int(differences.sum())), np.stack([sums, sizes], axis=1)
    found = estimate(value, columns, lambda s: rollouts * s[:, 0] / s[:, 1], settings, log=False)
    return _bounded(found, sums, sizes, rollouts, settings.level)


def _of_rates(pair: Pair, settings: Statistics) -> Estimate:
    sizes, estimand = pair.of_subject.sizes, settings.estimand
    own, other = pair.of_subject.sums(pair.subject.correct), pair.of_reference.sums(pair.reference.correct)
    value = share(own, sizes, estimand) - share(other, sizes, estimand)
    columns = np.stack([own - other, sizes], axis=1)
    if estimand == "mean_of_clusters":
        columns = np.stack([(own - other) / sizes, np.ones(len(sizes))], axis=1)
    found = estimate(value, columns, lambda s: s[:, 0] / s[:, 1], settings, log=False, estimand=estimand)
    return _bounded(found, own - other, sizes, 1, settings.level)


def _of_means(pair: Pair, column: str, settings: Statistics) -> Estimate:
    own, other = getattr(pair.subject, column), getattr(pair.reference, column)
    thought = [one.thinking_length > 0 for one in (pair.subject, pair.reference)]
    if not all(one.any() for one in thought):
        return Estimate(None, clusters=len(pair), reason="nothing_measured")
    if not (np.isfinite(own[thought[0]]).all() and np.isfinite(other[thought[1]]).all()):
        return Estimate(None, clusters=len(pair), reason="not_finite")
    value = mean(own[thought[0]]) - mean(other[thought[1]])
    columns = pair.columns(
        [np.where(thought[0], own, 0), thought[0]],
        [np.where(thought[1], other, 0), thought[1]],
    )
    return estimate(value, columns, lambda s: s[:, 0] / s[:, 1] - s[:, 2] / s[:, 3], settings, log=False)


def _bounded(found: Estimate, sums_K: np.ndarray, sizes_K: np.ndarray, unit: int, level: float) -> Estimate:
    """With the exact bound where all clusters changed alike: a rollout changes by -1 to 1, times `unit`."""
    if found.reason is None or not ((sums_K == sums_K[0]).all() and (sizes_K == sizes_K[0]).all()):
        return found
    low, high = agreeing_clusters(float(sums_K[0] / sizes_K[0]), len(sizes_K), level, -1.0, 1.0)
    return replace(found, bound=(unit * low, unit * high))
