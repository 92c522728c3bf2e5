"""Geometric means of length ratios: of clean answers by cell, and of jointly correct answers by pair.

Length is thinking tokens, as in the reward. A ratio with no thinking on either side has no logarithm, so it is left out.
"""

from __future__ import annotations

import numpy as np

from ablation.measures.bootstrap import Estimate, estimate
from ablation.measures.clusters import cluster_names, shared_names, sums
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes


def clean_length_ratio(subject: Outcomes, reference: Outcomes, settings: Statistics) -> Estimate:
    """Geometric mean over cells of (subject's mean clean length / reference's), where both have a clean rollout."""
    names = shared_names(subject.cell, reference.cell)
    means = []
    for one in (subject, reference):
        count = sums(names, one.cell, one.clean)
        total = sums(names, one.cell, np.where(one.clean, one.thinking_length, 0))
        means.append(np.divide(total, count, out=np.zeros(len(names)), where=count > 0))
    both = (means[0] > 0) & (means[1] > 0)
    return _geometric_mean(np.log(means[0][both] / means[1][both]), np.arange(both.sum()), int(both.sum()), settings)


def jointly_correct_length_ratio(subject: Outcomes, reference: Outcomes, settings: Statistics, cluster: str = "cell") -> Estimate:
    """Geometric mean of (subject's length / reference's) over the (cell, index) pairs that both models solved."""
    subject, reference = subject.sorted(), reference.sorted()
    if not (np.array_equal(subject.cell, reference.cell) and np.array_equal(subject.index, reference.index)):
        raise ValueError("subject and reference do not have the same rollouts")
    both = subject.correct & reference.correct & (subject.thinking_length > 0) & (reference.thinking_length > 0)
    logs = np.log(subject.thinking_length[both] / reference.thinking_length[both])
    names, place = np.unique(cluster_names(subject, cluster)[both], return_inverse=True)
    return _geometric_mean(logs, place, len(names), settings)


def _geometric_mean(logs: np.ndarray, cluster: np.ndarray, clusters: int, settings: Statistics) -> Estimate:
    if clusters == 0:
        return Estimate(None, reason="nothing_shared")
    columns = np.stack([np.bincount(cluster, weights=logs, minlength=clusters), np.bincount(cluster, minlength=clusters)], axis=1)
    total, count = columns.sum(axis=0)
    return estimate(float(np.exp(total / count)), columns, lambda s: np.exp(s[:, 0] / s[:, 1]), settings)
