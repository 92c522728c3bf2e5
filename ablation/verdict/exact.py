"""Numbers as fractions, so that a limit is met or missed exactly and never by float dust."""

from __future__ import annotations

from fractions import Fraction


def exact(number: Fraction | float | int) -> Fraction:
    """The number as it is written: 0.1 is one tenth, not the double nearest to it. `number` must be finite."""
    return Fraction(repr(float(number))) if isinstance(number, float) else Fraction(number)
