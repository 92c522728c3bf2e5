"""Agreement of two raters beyond what their own shares of each answer would give by chance.

Cohen's kappa (Cohen 1960, "A coefficient of agreement for nominal scales"): `(p_o - p_e) / (1 - p_e)`, with `p_o` the share of
items on which both say the same and `p_e` the sum over answers of the product of the two raters' shares of that answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction


def cohens_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> Fraction | None:
    """Kappa of two raters' answers to the same items, exact; None without items or where both always say the same one thing."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} answers of one rater, {len(second)} of the other")
    if not first:
        return None
    n = len(first)
    agreed = Fraction(sum(a == b for a, b in zip(first, second, strict=True)), n)
    ours, theirs = Counter(first), Counter(second)
    chance = sum((Fraction(ours[answer] * theirs[answer], n * n) for answer in ours), Fraction(0))
    return None if chance == 1 else (agreed - chance) / (1 - chance)
