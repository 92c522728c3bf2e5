"""Holm's step-down correction: the rate of any false claim among m tests stays at most alpha, whatever their dependence.

With p(1) <= ... <= p(m), the adjusted p(i) is the largest of (m - j + 1) p(j) for j <= i, at most 1 (Holm 1979).
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p-values in the order given. A test without one (None) counts among the m as if nothing were found."""
    m, running = len(p_values), 0.0
    adjusted: list[float | None] = [None] * m
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    for rank, (p, place) in enumerate(known):
        running = max(running, min(1.0, (m - rank) * p))
        adjusted[place] = running
    return adjusted
