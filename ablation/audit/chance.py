"""Distributions by own code: normal, Student's t and the bounds of shares that the written definitions ask for."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

SMALL = 1e-300


def normal_below(z: float) -> float:
    return NormalDist().cdf(z)


def t_above(t: float, freedom: float) -> float:
    """P(T > t) for t >= 0: half the incomplete beta function I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t^2)."""
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2


@lru_cache(maxsize=256)
def t_quantile(share: float, freedom: float) -> float:
    """The t that a share of the distribution lies below, by bisection."""
    if share < 0.5:
        return -t_quantile(1 - share, freedom)
    low, high = 0.0, 1.0
    while t_above(high, freedom) > 1 - share:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_above(middle, freedom) > 1 - share else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularized, by its continued fraction (Abramowitz and Stegun 1964, 26.5.8), on the side where that converges."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d, c = 1 / _away(1 + term * d), _away(1 + term / c)
            step = c * d
            found *= step
        if abs(step - 1) < 1e-16:
            break
    return front * found


def _away(value: float) -> float:
    """The value, kept away from a division by zero."""
    return value if abs(value) > SMALL else SMALL


def none_of(trials: int, level: float) -> float:
    """The highest share that `trials` independent failures do not speak against: 1 - tail^(1 / trials) (Clopper and Pearson)."""
    return 1 - ((1 - level) / 2) ** (1 / trials)


def wilson(share: float, trials: float, quantile: float) -> tuple[float, float]:
    """Ends p of the shares with |share - p| <= quantile * sqrt(p (1 - p) / trials): the roots of a quadratic."""
    q = quantile * quantile / trials
    a, b, c = 1 + q, -(2 * share + q), share * share
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return max(0.0, (-b - root) / (2 * a)), min(1.0, (-b + root) / (2 * a))
