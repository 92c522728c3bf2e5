"""t tests: over clusters, by the jackknife, and over training seeds, by Welch.

Welch 1947: two groups of unequal variance, t = (mean x - mean y) / sqrt(vx / n + vy / m), with the degrees of freedom of
Satterthwaite 1946, (vx / n + vy / m)^2 / ((vx / n)^2 / (n - 1) + (vy / m)^2 / (m - 1)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ablation.measures.jackknife import Jackknife


def t_test(found: Jackknife, side: str) -> float | None:
    """p-value of a mean (its logarithm, for ratios) of 0; None if the clusters agree on something else, which has no spread."""
    from scipy.special import stdtr

    if found.error <= 1e-9 * abs(found.centre):
        return 1.0 if found.centre == 0 else None
    t = found.centre / found.error
    if side == "two_sided":
        return float(2 * stdtr(found.freedom, -abs(t)))
    return float(stdtr(found.freedom, -t if side == "greater" else t))


def welch(subject: Sequence[float], reference: Sequence[float]) -> Jackknife | None:
    """Difference of the means, its standard error and degrees of freedom, from one number a training seed, at least two each.

    None if neither group varies.
    """
    groups = [np.asarray(one, dtype=float) for one in (subject, reference)]
    parts = [one.var(ddof=1) / len(one) for one in groups]
    if sum(parts) == 0:
        return None
    freedom = sum(parts) ** 2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, groups, strict=True))
    return Jackknife(float(groups[0].mean() - groups[1].mean()), math.sqrt(sum(parts)), float(freedom))
