"""All generated tokens per correct answer, as a ratio to the reference."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ablation.measures.bootstrap import Estimate, estimate
from ablation.measures.clusters import cluster_names, shared_names, sums
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes


def tokens_per_correct_ratio(subject: Outcomes, reference: Outcomes, settings: Statistics, cluster: str = "cell") -> Estimate:
    """(subject's tokens / subject's correct) / (reference's tokens / reference's correct), pooled over all rollouts.

    A ratio of sums, paired: a resample draws the same clusters for both models. Undefined if a model has no correct answer.
    """
    of_subject, of_reference = cluster_names(subject, cluster), cluster_names(reference, cluster)
    names = shared_names(of_subject, of_reference)
    columns = np.stack(
        [
            sums(names, of_subject, subject.total_tokens),
            sums(names, of_subject, subject.correct),
            sums(names, of_reference, reference.total_tokens),
            sums(names, of_reference, reference.correct),
        ],
        axis=1,
    )
    tokens, correct, reference_tokens, reference_correct = (int(total) for total in columns.sum(axis=0))
    if correct == 0 or reference_correct == 0:
        return Estimate(None, clusters=len(names), reason="zero_correct")
    value = Fraction(tokens * reference_correct, correct * reference_tokens)
    return estimate(value, columns, lambda s: (s[:, 0] / s[:, 1]) / (s[:, 2] / s[:, 3]), settings)
