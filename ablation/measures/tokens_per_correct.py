"""All generated tokens per correct answer, as a ratio to the reference."""

from __future__ import annotations

import numpy as np

from ablation.measures.clusters import Pair
from ablation.measures.estimate import Estimate
from ablation.measures.ratio_of_sums import ratio_of_sums
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes


def tokens_per_correct_ratio(subject: Outcomes, reference: Outcomes, settings: Statistics, cluster: str = "cell") -> Estimate:
    """(subject's tokens / subject's correct) / (reference's tokens / reference's correct), pooled over all rollouts.

    Undefined if a model has no correct answer.
    """
    return of_pair(Pair.by(subject, reference, cluster), settings)


def of_pair(pair: Pair, settings: Statistics) -> Estimate:
    """The same of models that are gathered by cluster already."""
    return ratio_of_sums(columns(pair), settings, reason="zero_correct", missing=pair.missing)


def columns(pair: Pair) -> np.ndarray:
    """Sums by cluster of the subject's tokens and correct answers and of the reference's, float64 [K, 4]."""
    subject, reference = pair.subject, pair.reference
    return pair.columns([subject.total_tokens, subject.correct], [reference.total_tokens, reference.correct])
