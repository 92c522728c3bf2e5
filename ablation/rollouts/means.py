"""A mean without float dust: it does not depend on order, and the mean of equal numbers is that number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

_HALF = 27
_MASK = (1 << _HALF) - 1


def mean(values: np.ndarray) -> float:
    """Mean of at least one number, rounded once from the exact sum; NaN or an infinity if one of them is not finite."""
    if not np.isfinite(values).all():
        with np.errstate(invalid="ignore"):
            return float(values.astype(float).sum())  # an exact sum of a mix of infinities there is not
    total, count = exact_sum(values), len(values)
    guess = float(total) / count  # two roundings: one of the sum, one of the quotient
    return guess + float(total - count * Fraction(guess)) / count


def exact_sum(values: np.ndarray) -> Fraction:
    """The sum of finite numbers without any rounding: of their mantissas in two halves, for each exponent by itself.

    The halves are whole numbers of 27 bits, so a float64 holds the sum of 2^26 of them exactly.
    """
    if len(values) > 1 << 26:
        return exact_sum(values[: 1 << 26]) + exact_sum(values[1 << 26 :])
    mantissa, exponent = np.frexp(values)
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = int(exponent.min(initial=0))
    place = exponent - lowest
    high, low = (np.bincount(place, weights=half).tolist() for half in (whole >> _HALF, whole & _MASK))
    total = sum(((int(h) << _HALF) + int(one)) << power for power, (h, one) in enumerate(zip(high, low, strict=True)))
    return Fraction(total) * Fraction(2) ** (lowest - 53)
