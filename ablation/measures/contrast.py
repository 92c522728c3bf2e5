"""What a test between two models rests on: sums by cluster, and the statistic of them that is 0 (or 1) if nothing differs.

Counts, means and shares are differences; tokens per correct and clean length are ratios, which are tested on the log scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ablation.measures import tokens_per_correct
from ablation.measures.clusters import Pair
from ablation.measures.lengths import clean_logs
from ablation.measures.rates import share
from ablation.measures.ratio_of_sums import pooled_ratio
from ablation.plan.measures import ANSWER_COUNTS
from ablation.plan.model import Statistics
from ablation.rollouts.imported import OF_THINKING
from ablation.rollouts.means import mean

MEANS = {"logprob": "logprob", "top20_entropy": "top_entropy", "top20_mass": "top_mass"}
"""Measure that is a mean over rollouts with thinking -> its column in `Outcomes`."""
RATIOS = ("tokens_per_correct", "clean_length")
"""Measures whose contrast is a ratio."""


@dataclass(frozen=True)
class Contrast:
    """K clusters with M sums each, in the order of the clusters' names."""

    value: Fraction | float | None
    """None: undefined, see `reason`."""
    columns_KM: np.ndarray
    statistic: Callable[[np.ndarray], np.ndarray]
    """Sums [R, M] -> numbers [R]. The scale of the sums does not matter, so a cluster can be left out."""
    log: bool
    """It is a ratio: without a difference it is 1, otherwise 0."""
    signs_K: np.ndarray
    """Which way each cluster goes: above 0 for a higher subject."""
    reason: str | None = None
    """A key of `REASONS`."""

    @property
    def null(self) -> float:
        return 1.0 if self.log else 0.0


def contrast(pair: Pair, name: str, settings: Statistics) -> Contrast:
    """Of one of `plan.claims.MEASURES`, between models whose rows are partners and gathered by cell or problem."""
    if name in OF_THINKING and (pair.subject.redacted.any() or pair.reference.redacted.any()):
        return Contrast(None, np.zeros((0, 1)), np.ravel, False, np.zeros(0), "redacted")
    if name == "tokens_per_correct":
        return _tokens_per_correct(pair)
    if name == "clean_length":
        return _clean_length(pair)
    if name in MEANS:
        return _means(pair, MEANS[name])
    sizes = pair.of_subject.sizes
    if name == "correct_rate":
        own, other = pair.of_subject.sums(pair.subject.correct), pair.of_reference.sums(pair.reference.correct)
        value = share(own, sizes, settings.estimand) - share(other, sizes, settings.estimand)
        columns = [own - other, sizes]
        if settings.estimand == "mean_of_clusters":
            columns = [(own - other) / sizes, np.ones(len(sizes))]
        return Contrast(value, np.stack(columns, axis=1), lambda s: s[:, 0] / s[:, 1], False, own - other)
    if name not in ANSWER_COUNTS:
        raise ValueError(f"`{name}` has no contrast")
    differences = getattr(pair.subject, name).astype(np.int64) - getattr(pair.reference, name)
    sums, rollouts = pair.of_subject.sums(differences), len(pair.subject)
    columns_K2 = np.stack([sums, sizes], axis=1)
    return Contrast(Fraction(int(differences.sum())), columns_K2, lambda s: rollouts * s[:, 0] / s[:, 1], False, sums)


def _means(pair: Pair, column: str) -> Contrast:
    sides, own = [], []
    for one in (pair.subject, pair.reference):
        thought, values = one.thinking_length > 0, getattr(one, column)
        sides.append([np.where(thought, values, 0.0), thought])
        own.append(values[thought])
    columns = pair.columns(*sides)
    with np.errstate(divide="ignore", invalid="ignore"):
        means_K = columns[:, 0] / columns[:, 1] - columns[:, 2] / columns[:, 3]
    reason = "nothing_measured" if not all(map(len, own)) else None
    reason = reason or (None if all(np.isfinite(values).all() for values in own) else "not_finite")
    value = None if reason else mean(own[0]) - mean(own[1])
    statistic = _difference_of_means
    return Contrast(value, columns, statistic, False, np.nan_to_num(means_K), reason)


def _difference_of_means(sums_RM: np.ndarray) -> np.ndarray:
    return sums_RM[:, 0] / sums_RM[:, 1] - sums_RM[:, 2] / sums_RM[:, 3]


def _tokens_per_correct(pair: Pair) -> Contrast:
    columns = tokens_per_correct.columns(pair)
    a, b, c, d = (int(total) for total in columns.sum(axis=0))
    value = Fraction(a * d, b * c) if b and c and d else None
    signs = columns[:, 0] * columns[:, 3] - columns[:, 2] * columns[:, 1]  # a cluster without correct answers is the dearest
    return Contrast(value, columns, pooled_ratio, True, signs, None if value is not None else "zero_correct")


def _clean_length(pair: Pair) -> Contrast:
    logs, _ = clean_logs(pair)
    columns = np.stack([logs, np.ones(len(logs))], axis=1)
    value = float(np.exp(logs.mean())) if len(logs) else None
    return Contrast(
        value, columns, lambda s: np.exp(s[:, 0] / s[:, 1]), True, logs, None if value is not None else "nothing_shared"
    )
