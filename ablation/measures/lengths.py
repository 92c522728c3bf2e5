"""Geometric means of length ratios: of clean answers by cell, and of jointly correct answers by pair.

Length is thinking tokens, as in the reward. A ratio with no thinking on either side has no logarithm, so it is left out.
"""

from __future__ import annotations

import numpy as np

from ablation.measures.clusters import Clusters, Pair, partners
from ablation.measures.estimate import Estimate
from ablation.measures.geometric_mean import geometric_mean
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes


def clean_length_ratio(subject: Outcomes, reference: Outcomes, settings: Statistics, cluster: str = "cell") -> Estimate:
    """Geometric mean over cells of (subject's mean clean length / reference's), where both have a clean rollout."""
    return clean_of_pair(Pair.by(subject, reference, "cell"), settings, cluster)


def clean_of_pair(pair: Pair, settings: Statistics, cluster: str = "cell") -> Estimate:
    """The same of models that are gathered by cell already; `cluster`: what is drawn together."""
    logs, names = clean_logs(pair)
    if cluster == "problem":
        names = np.char.rpartition(names, "@")[:, 0] if len(names) else names
    place = np.unique(names, return_inverse=True)[1]
    return geometric_mean(logs, place, len(set(place.tolist())), settings, missing=pair.missing)


def clean_logs(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    """(log of the ratio of mean clean lengths, name) of the cells in which both models have one, [K] each."""
    means = []
    for one, clusters in ((pair.subject, pair.of_subject), (pair.reference, pair.of_reference)):
        clean = one.clean
        count, total = clusters.sums(clean), clusters.sums(np.where(clean, one.thinking_length, 0))
        means.append(np.divide(total, count, out=np.zeros(len(clusters)), where=count > 0))
    both = (means[0] > 0) & (means[1] > 0)
    return np.log(means[0][both] / means[1][both]), pair.of_subject.names[both]


def jointly_correct_length_ratio(subject: Outcomes, reference: Outcomes, settings: Statistics, cluster: str = "cell") -> Estimate:
    """Geometric mean of (subject's length / reference's) over the (cell, index) pairs that both models solved.

    Raises `IncompleteError` if a rollout has no partner.
    """
    subject, reference = partners(subject, reference)
    both = subject.correct & reference.correct & (subject.thinking_length > 0) & (reference.thinking_length > 0)
    own, other = subject.take(both), reference.take(both)
    names = Clusters.by(own, cluster)
    return geometric_mean(np.log(own.thinking_length / other.thinking_length), names.of, len(names), settings)
