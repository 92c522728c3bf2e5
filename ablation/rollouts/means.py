"""A mean without float dust: it does not depend on order, and the mean of equal numbers is that number."""

from __future__ import annotations

import math

import numpy as np


def mean(values: np.ndarray) -> float:
    """Mean of at least one number, rounded once from the exact sum; NaN or an infinity if one of them is not finite."""
    if not np.isfinite(values).all():
        with np.errstate(invalid="ignore"):
            return float(values.astype(float).sum())  # fsum refuses a mix of infinities
    numbers = values.tolist()
    guess = math.fsum(numbers) / len(numbers)  # two roundings: one of the sum, one of the quotient
    return guess + math.fsum([*numbers, *([-guess] * len(numbers))]) / len(numbers)
