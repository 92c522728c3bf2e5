"""Exact distributions, independent of the simulation: of a count's change between two stages of equal models."""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, gammaln
from scipy.stats import binom


def binomial_difference(rollouts: int, rate: float) -> dict[int, float]:
    """X - Y for independent X, Y ~ Binomial(rollouts, rate), by convolution."""
    pmf = binom.pmf(np.arange(rollouts + 1), rollouts, rate)
    return dict(zip(range(-rollouts, rollouts + 1), np.convolve(pmf, pmf[::-1]), strict=True))


def beta_binomial_difference(cells: int, per_cell: int, rate: float, concentration: float) -> dict[int, float]:
    """The same for `cells` cells whose rates are Beta(rate * a, (1 - rate) * a) and the same in both stages.

    Given its rate p a cell has P(x, y) = C(n, x) C(n, y) p^(x + y) (1 - p)^(2n - x - y); the beta integral of that is
    B(a1 + x + y, a2 + 2n - x - y) / B(a1, a2). The difference of a stage is the convolution over its cells.
    """
    n, first, second = per_cell, rate * concentration, (1 - rate) * concentration
    choose = gammaln(n + 1) - gammaln(np.arange(n + 1) + 1) - gammaln(n - np.arange(n + 1) + 1)
    one = np.zeros(2 * n + 1)
    for x in range(n + 1):
        for y in range(n + 1):
            logs = choose[x] + choose[y] + betaln(first + x + y, second + 2 * n - x - y) - betaln(first, second)
            one[x - y + n] += np.exp(logs)
    total = np.ones(1)
    for _ in range(cells):
        total = np.convolve(total, one)
    return dict(zip(range(-cells * n, cells * n + 1), total, strict=True))


def at_most(distribution: dict[int, float], limit: int) -> float:
    return sum(share for value, share in distribution.items() if value <= limit)
