"""Rollouts gathered by cluster, in the order of the clusters' names."""

from __future__ import annotations

import numpy as np

from ablation.rollouts.outcomes import Outcomes


def cluster_names(outcomes: Outcomes, cluster: str) -> np.ndarray:
    """str [N]: what each rollout is resampled with: its `cell`, or its `problem`."""
    return {"cell": outcomes.cell, "problem": outcomes.problem}[cluster]


def sums(names: np.ndarray, of: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sum of `values` [N] over the rows that are `of` [N] each of the sorted `names` [K], float64 [K].

    Exact for whole numbers below 2^53.
    """
    return np.bincount(np.searchsorted(names, of), weights=values, minlength=len(names))


def shared_names(subject: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The sorted cluster names, which both models must have in common: comparisons are paired by cluster."""
    names = np.unique(subject)
    if not np.array_equal(names, np.unique(reference)):
        raise ValueError("subject and reference were sampled on different cells")
    return names
