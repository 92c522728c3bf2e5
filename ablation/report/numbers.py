"""Numbers with a sign as they are printed: what rounds to zero is zero, never `-0.000`."""

from __future__ import annotations

from fractions import Fraction

Real = int | float | Fraction


def fixed(value: Real, digits: int) -> str:
    """`-0.25` with two digits; a value that rounds to zero has no sign."""
    return f"{float(value):z.{digits}f}"


def with_sign(value: Real, digits: int) -> str:
    """`+7` or `-0.25`; what rounds to zero is `+0.00`."""
    return f"{float(value):+z.{digits}f}"


def short(value: Real, digits: int) -> str:
    """With that many significant digits, as `g` writes them."""
    return f"{float(value):z.{digits}g}"


def percent(value: Real, digits: int) -> str:
    """A share in percent."""
    return f"{fixed(100 * float(value), digits)}%"


def percent_range(low: Real, high: Real) -> str:
    """Two shares in percent, without its sign: whole ones, or with as many digits as show that neither is zero if it is not.

    `0.1`, `-24 to -7`, `0 to 26`; once if both are written alike.
    """
    ends = [100 * float(low), 100 * float(high)]
    digits = next((n for n in range(3) if all(end == 0 or float(fixed(end, n)) != 0 for end in ends)), 3)
    low_text, high_text = (fixed(end, digits) for end in ends)
    return low_text if low_text == high_text else f"{low_text} to {high_text}"
