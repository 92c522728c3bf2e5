"""Rollouts gathered by cluster, in the order of the clusters' names, and matched with their partners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablation.errors import IncompleteError, IntegrityError
from ablation.rollouts.outcomes import Outcomes

Key = tuple[str, str, int]
"""(problem, effort, index within the cell): a rollout and its partner of another model have the same."""


@dataclass(frozen=True)
class Clusters:
    """The clusters of one model's rollouts: K names in sorted order, and each rollout's place among them."""

    names: np.ndarray  # str [K]
    of: np.ndarray  # int64 [N]

    @staticmethod
    def by(outcomes: Outcomes, cluster: str) -> Clusters:
        """`cluster`: what is resampled, `cell` or `problem`. Rollouts of a cell mostly lie together, so few names are sorted."""
        columns = [outcomes.problem, outcomes.effort] if cluster == "cell" else [outcomes.problem]
        new = np.ones(len(outcomes), dtype=bool)
        for place, column in enumerate(columns):
            differs = column[1:] != column[:-1]
            new[1:] = differs if place == 0 else new[1:] | differs
        first = np.flatnonzero(new)
        heads = outcomes.take(first).cell if cluster == "cell" else outcomes.problem[first]
        names, of = np.unique(heads, return_inverse=True)
        return Clusters(names, np.repeat(of, np.diff(np.append(first, len(outcomes)))))

    def __len__(self) -> int:
        return len(self.names)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sum of `values` [N] by cluster, float64 [K]; exact for whole numbers below 2^53."""
        return np.bincount(self.of, weights=values, minlength=len(self.names))

    @property
    def sizes(self) -> np.ndarray:
        """Rollouts by cluster, float64 [K]."""
        return np.bincount(self.of, minlength=len(self.names)).astype(np.float64)


@dataclass(frozen=True)
class Pair:
    """Two models on the same clusters."""

    subject: Outcomes
    reference: Outcomes
    of_subject: Clusters
    of_reference: Clusters
    missing: int
    """Rollouts that one of the two has and the other has not."""

    @staticmethod
    def by(subject: Outcomes, reference: Outcomes, cluster: str) -> Pair:
        """Raises `IntegrityError` unless both models were sampled on the same clusters: comparisons are paired."""
        one, other = Clusters.by(subject, cluster), Clusters.by(reference, cluster)
        if not np.array_equal(one.names, other.names):
            only = sorted(set(one.names.tolist()) ^ set(other.names.tolist()))
            raise IntegrityError(
                f"subject and reference were sampled on different {cluster}s: {len(only)} are in one of them alone, "
                f"for instance {only[0]}"
            )
        missing = 0 if in_step(subject, reference) else sum(map(len, unpaired(subject, reference)))
        return Pair(subject, reference, one, other, missing)

    def __len__(self) -> int:
        """Clusters."""
        return len(self.of_subject)

    def columns(self, of_subject: list[np.ndarray], of_reference: list[np.ndarray]) -> np.ndarray:
        """Sums by cluster of the subject's and then the reference's values, float64 [K, M]."""
        own = [self.of_subject.sums(values) for values in of_subject]
        return np.stack(own + [self.of_reference.sums(values) for values in of_reference], axis=1)


def in_step(subject: Outcomes, reference: Outcomes) -> bool:
    """Whether row i of both is the same rollout, for every i."""
    return len(subject) == len(reference) and all(
        np.array_equal(getattr(subject, name), getattr(reference, name)) for name in ("index", "problem", "effort")
    )


def keys(outcomes: Outcomes) -> list[Key]:
    """The key of every row. Raises `IntegrityError` if two rows have one."""
    found = list(zip(outcomes.problem.tolist(), outcomes.effort.tolist(), outcomes.index.tolist(), strict=True))
    if len(set(found)) < len(found):
        problem, effort, index = next(key for key in sorted(found) if found.count(key) > 1)
        raise IntegrityError(f"rollout {problem}@{effort} #{index} is there twice")
    return found


def unpaired(subject: Outcomes, reference: Outcomes) -> tuple[list[Key], list[Key]]:
    """Keys that the subject lacks and keys that the reference lacks, each sorted. Raises as `keys`."""
    one, other = set(keys(subject)), set(keys(reference))
    return sorted(other - one), sorted(one - other)


def missing_rows(outcomes: Outcomes) -> list[Key]:
    """Keys that are not there though every cell should have every index that some cell has, sorted. Raises as `keys`."""
    cells = Clusters.by(outcomes, "cell")
    indices, column = np.unique(outcomes.index, return_inverse=True)
    there = np.bincount(cells.of * len(indices) + column, minlength=len(cells) * len(indices))
    if (there == 1).all():
        return []
    found = set(keys(outcomes))
    wanted = {(problem, effort) for problem, effort, _ in found}
    return sorted({(*cell, int(index)) for cell in wanted for index in indices} - found)


def partners(subject: Outcomes, reference: Outcomes) -> tuple[Outcomes, Outcomes]:
    """Both in one order, so that row i of one is the partner of row i of the other: same cell, same rollout seed.

    Raises `IncompleteError` that names what is missing if a rollout has no partner: none is left out in silence.
    """
    if in_step(subject, reference):
        return subject, reference
    subject, reference = subject.sorted(), reference.sorted()
    if in_step(subject, reference):
        return subject, reference
    lacks = unpaired(subject, reference)
    raise IncompleteError(
        "subject and reference do not have the same rollouts: "
        + "; ".join(f"the {who} lacks {_named(gone)}" for who, gone in zip(("subject", "reference"), lacks, strict=True) if gone)
    )


def _named(gone: list[Key]) -> str:
    shown = ", ".join(f"{problem}@{effort} #{index}" for problem, effort, index in gone[:5])
    return f"{len(gone)}: {shown}" + (" ..." if len(gone) > 5 else "")
