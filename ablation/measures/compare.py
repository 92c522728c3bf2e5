"""One stage against its reference: every ratio, change and rate that the plan's rules may name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

from ablation.measures import lengths, tokens_per_correct
from ablation.measures.changes import changes
from ablation.measures.clusters import Pair
from ablation.measures.estimate import Estimate
from ablation.measures.medians import median_ratio
from ablation.measures.rates import correct_rate, rates
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes

__all__ = ["RATIOS", "changes", "correct_rate", "rates", "ratios"]


def ratios(
    subject: Outcomes,
    reference: Outcomes,
    measured: tuple[dict[str, Any], dict[str, Any]] | None,
    settings: Statistics,
    cluster: str = "cell",
    names: Collection[str] | None = None,
    medians: bool = False,
) -> dict[str, Estimate]:
    """Measure -> ratio subject / reference, with intervals over `cluster`, for `names` (default: all of `RATIOS`).

    `measured` is not used: a ratio is computed from the rollouts alone. The interval of a ratio of medians takes long on many
    rollouts, so it is made only for those who ask for it by `medians`.
    """
    both = _Both(subject, reference, settings, cluster, medians)
    return {name: compute(both) for name, compute in RATIOS.items() if names is None or name in names}


class _Both:
    """Two models that are gathered by cluster once, when the first ratio asks for it."""

    def __init__(self, subject: Outcomes, reference: Outcomes, settings: Statistics, cluster: str, medians: bool) -> None:
        self.subject, self.reference, self.settings, self.cluster = subject, reference, settings, cluster
        self.medians = medians

    @cached_property
    def pair(self) -> Pair:
        return Pair.by(self.subject, self.reference, self.cluster)

    @cached_property
    def by_cell(self) -> Pair:
        return self.pair if self.cluster == "cell" else Pair.by(self.subject, self.reference, "cell")

    def tokens_per_correct(self) -> Estimate:
        return tokens_per_correct.of_pair(self.pair, self.settings)

    def clean_length(self) -> Estimate:
        return lengths.clean_of_pair(self.by_cell, self.settings, self.cluster)

    def jointly_correct_length(self) -> Estimate:
        return lengths.jointly_correct_length_ratio(self.subject, self.reference, self.settings, self.cluster)

    def cjk_share(self) -> Estimate:
        """Of the medians over clean rollouts."""
        clean = [one.clean for one in (self.subject, self.reference)]
        values = self.subject.cjk_share[clean[0]], self.reference.cjk_share[clean[1]]
        places = self.pair.of_subject.of[clean[0]], self.pair.of_reference.of[clean[1]]
        return median_ratio(values, places, len(self.pair), self.settings, missing=self.pair.missing, interval=self.medians)


RATIOS: dict[str, Callable[[_Both], Estimate]] = {
    "tokens_per_correct": _Both.tokens_per_correct,
    "clean_length": _Both.clean_length,
    "jointly_correct_length": _Both.jointly_correct_length,
    "cjk_share": _Both.cjk_share,
}
"""Measures with a ratio, of stages of answers."""
