"""What a rollout of the starting model is likely to be, cell by cell: assumed, or taken from a pilot sweep.

Shapes: K cells, B studies, 12 kinds. In every simulated study the rates of a cell are drawn from a Dirichlet distribution (the
beta distribution for more than two kinds), and all runs of the study share them.

- assumed: parameters a * P in every cell. P are the stated rates; the concentration a says how alike cells are: of the variance
  of one rollout's outcome the share 1 / (1 + a) lies between cells.
- pilot: parameters n + a * P, where n are the cell's own counts and P the pilot's rates over all cells: the posterior of the
  same model, so a cell is shrunk toward the average by a / (a + its rollouts). a is estimated by moments from the pilot's
  variance within and between cells, or stated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ablation.errors import UsageError
from ablation.power.kinds import KINDS, MEMBERS, kind

FIXED = 1e6
"""A concentration from here on is taken as: no variation between cells at all."""
UNSEEN = 0.5
"""Rollouts that a pilot is credited with for each ordinary kind that it never showed: none of 348 is not never."""
ORDINARY = (kind(False, False, "correct"), kind(False, False, "incorrect"), kind(True, False, "none"), kind(True, True, "none"))


class Mean(NamedTuple):
    """A measure that is a mean over rollouts, such as logprob."""

    level: float | None
    """In a sweep of the start; None if unknown."""
    within: float
    """Standard deviation of a rollout in its cell."""
    between: float
    """Standard deviation of the cells' own levels."""


@dataclass(frozen=True)
class Rates:
    """The starting model on the cells of one stage."""

    parameters_KC: np.ndarray  # float64 [K, 12], of the Dirichlet distributions
    per_cell: int  # rollouts of each cell in a stage
    concentration: float
    source: str
    means: dict[str, Mean] = field(default_factory=dict)
    """By measure."""

    @property
    def total(self) -> int:
        """Rollouts in a stage."""
        return len(self.parameters_KC) * self.per_cell

    @property
    def expected_KC(self) -> np.ndarray:
        """Mean rates of each cell, float64 [K, 12]."""
        return self.parameters_KC / self.parameters_KC.sum(axis=1, keepdims=True)

    @property
    def pooled_C(self) -> np.ndarray:
        """Mean rates over all rollouts, float64 [12]."""
        return self.expected_KC.mean(axis=0)

    def expected(self) -> dict[str, float]:
        """Measure -> share of rollouts."""
        return {name: float(self.pooled_C[members].sum()) for name, members in MEMBERS.items()}

    def draw(self, studies: int, generator: np.random.Generator) -> np.ndarray:
        """Rates of the cells in each of `studies` studies, float64 [B, K, 12]."""
        if self.concentration >= FIXED:
            return np.broadcast_to(self.expected_KC, (studies, *self.parameters_KC.shape)).copy()
        possible = self.parameters_KC.any(axis=0)
        parameters_Kc = self.parameters_KC[:, possible]
        drawn = np.zeros((studies, *self.parameters_KC.shape))
        drawn[..., possible] = generator.standard_gamma(parameters_Kc, (studies, *parameters_Kc.shape))
        total = drawn.sum(axis=-1, keepdims=True)
        # with tiny parameters every gamma of a cell can underflow to 0; its mean rates then stand in
        return np.where(total > 0, drawn / np.where(total > 0, total, 1), self.expected_KC)


def assumed_pool(correct: float, truncated: float, looping: float, looping_truncated: float) -> np.ndarray:
    """Rates of the 12 kinds: correct rollouts are clean, truncated and looping ones are not, the rest finish with a wrong answer.

    `looping_truncated` is the share of looping rollouts that are truncated too. Raises `UsageError` if they cannot all be.
    """
    both = looping * looping_truncated
    if both > truncated:
        raise UsageError(
            f"{looping_truncated:g} of looping {looping:g} are truncated too, which is more than truncated {truncated:g}",
            hint="Lower --looping or --looping-truncated, or raise --truncated.",
        )
    rest = 1 - correct - truncated - looping + both
    if rest < -1e-12:
        raise UsageError(
            f"correct {correct:g} and truncated or looping {truncated + looping - both:g} are more than all rollouts",
            hint="A correct rollout is taken to be neither truncated nor looping: lower one of the rates.",
        )
    pool = np.zeros(KINDS)
    pool[kind(False, False, "correct")] = correct
    pool[kind(False, False, "incorrect")] = max(rest, 0)
    pool[kind(False, True, "incorrect")] = looping - both
    pool[kind(True, False, "none")] = truncated - both
    pool[kind(True, True, "none")] = both
    return pool


def assumed_rates(
    pool: np.ndarray, cells: int, per_cell: int, concentration: float, logprob: Mean, source: str = "assumed rates"
) -> Rates:
    """The same expected rates `pool` [12] in all `cells`."""
    parameters = np.tile(pool * min(concentration, FIXED), (cells, 1))
    return Rates(parameters, per_cell, concentration, source, {"logprob": logprob})


def pilot_rates(
    counts_KC: np.ndarray,
    pool_counts_C: np.ndarray,
    per_cell: int,
    concentration: float | None,
    means: dict[str, Mean],
    source: str,
) -> Rates:
    """Rates from a pilot: `counts_KC` are each plan cell's rollouts by kind (zeros: the pilot does not have the cell).

    `pool_counts_C` are the pilot's rollouts by kind over all cells. `concentration` None: estimated.
    """
    pool = pool_counts_C.astype(float)
    pool[list(ORDINARY)] = np.maximum(pool[list(ORDINARY)], UNSEEN)
    pool /= pool.sum()
    if concentration is None:
        concentration = estimated_concentration(counts_KC)
    counts = counts_KC if concentration < FIXED else np.zeros_like(counts_KC)
    return Rates(counts + min(concentration, FIXED) * pool, per_cell, concentration, source, means)


def estimated_concentration(counts_KC: np.ndarray) -> float:
    """Moment estimate of a: one rollout's outcome has the variance W within cells and T in all, and W / T = a / (1 + a).

    W is the mean over cells of n / (n - 1) * sum p (1 - p), T the same over all rollouts; `FIXED` if W is not below T, or if no
    cell has two rollouts.
    """
    sizes = counts_KC.sum(axis=1)
    cells = counts_KC[sizes > 1]
    if not len(cells):
        return FIXED
    sizes = cells.sum(axis=1)
    shares = cells / sizes[:, None]
    within = float((sizes / (sizes - 1) * (shares * (1 - shares)).sum(axis=1)).mean())
    pool = cells.sum(axis=0) / sizes.sum()
    total = float((pool * (1 - pool)).sum())
    if within >= total:
        return FIXED
    return max(within / (total - within), 0.05)
