"""t interval over clusters, by leaving each cluster out once.

theta_(k) is the statistic without cluster k. The standard error is sqrt((K - 1) / K * sum (theta_(k) - mean theta_(.))^2) and
the interval theta +- t(K - 1) * se (Efron and Tibshirani 1993, chapter 11; for clusters MacKinnon, Nielsen and Webb 2023, CV3J).
For a mean of equally large clusters this is the t interval on the clusters' means. Ratios are treated on the log scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

LEAST = 2
"""One cluster says nothing of how clusters differ."""


class Jackknife(NamedTuple):
    """The statistic (its logarithm, where `log`), and its standard error with so many degrees of freedom."""

    centre: float
    error: float
    freedom: float


def jackknife(columns_KM: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], *, log: bool) -> Jackknife | None:
    """None if the statistic is undefined, on all clusters or without one of them."""
    clusters = len(columns_KM)
    total_M = columns_KM.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(np.concatenate([total_M[None], total_M - columns_KM]))
        values = np.log(values) if log else values
    if not np.isfinite(values).all():
        return None
    without_K = values[1:]
    error = math.sqrt((clusters - 1) / clusters * float(((without_K - without_K.mean()) ** 2).sum()))
    return Jackknife(float(values[0]), error, clusters - 1)


def jackknife_interval(
    columns_KM: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], level: float, *, log: bool
) -> tuple[float, float] | None:
    """Ends of the interval, in the unit of the statistic; None as `jackknife`, and with fewer than `LEAST` clusters."""
    if len(columns_KM) < LEAST:
        return None
    found = jackknife(columns_KM, statistic, log=log)
    if found is None:
        return None
    from scipy.special import stdtrit

    half = float(stdtrit(found.freedom, (1 + level) / 2)) * found.error
    if half <= 1e-9 * abs(found.centre):  # rounding of equal numbers
        half = 0.0
    low, high = found.centre - half, found.centre + half
    return (math.exp(low), math.exp(high)) if log else (low, high)
