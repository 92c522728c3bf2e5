"""Whether length could have told a rater whose answer it is, and how the result stands with it. Lengths are characters shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

BANDS = ("short", "middle", "long")


def correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation; None with fewer than two values or where one of them never varies."""
    n = len(first)
    if n < 2 or len(set(first)) == 1 or len(set(second)) == 1:
        return None
    x, y = [one - math.fsum(first) / n for one in first], [one - math.fsum(second) / n for one in second]
    norm = math.sqrt(math.fsum(a * a for a in x)) * math.sqrt(math.fsum(b * b for b in y))
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / norm if norm else None


def model_and_length(subject: Sequence[int], reference: Sequence[int]) -> dict[str, Any]:
    """The correlation of being the subject (1 or 0) with the length, and of pairs how often which model is the longer one."""
    models = [1.0] * len(subject) + [0.0] * len(reference)
    found: dict[str, Any] = {"unit": "characters", "correlation": correlation(models, [*map(float, (*subject, *reference))])}
    if len(subject) == len(reference):
        pairs = list(zip(subject, reference, strict=True))
        found |= {
            "subject_longer": sum(a > b for a, b in pairs),
            "reference_longer": sum(a < b for a, b in pairs),
            "equal": sum(a == b for a, b in pairs),
        }
    return found


def thirds(lengths: Sequence[int]) -> list[str]:
    """Each item's band: thirds by rank of its length, ties in the given order; what is left over goes to the shorter bands."""
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    share, over = divmod(len(lengths), len(BANDS))
    bands = [band for place, band in enumerate(BANDS) for _ in range(share + (place < over))]
    found = [""] * len(lengths)
    for place, band in zip(order, bands, strict=True):
        found[place] = band
    return found


def binomial_two_sided(hits: int, trials: int) -> float:
    """Chance of a count at least as far from half as `hits` in `trials` throws of a fair coin, exact."""
    distance = abs(2 * hits - trials)
    ways = sum(math.comb(trials, k) for k in range(trials + 1) if abs(2 * k - trials) >= distance)
    return float(Fraction(ways, 2**trials))
