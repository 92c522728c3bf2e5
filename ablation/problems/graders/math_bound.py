"""How near to zero an algebraic number can be that is not zero.

The root bound of Burnikel, Funke, Mehlhorn, Schirra and Schmitt ("A separation bound for real algebraic expressions", ESA 2001),
which holds for complex numbers, too. Roots of unity, in sines and cosines of fractions of pi, are extensions like other roots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy as sp
from mpmath import iv

LARGEST_DEGREE = 200_000
_TRIG = (sp.sin, sp.cos, sp.tan, sp.cot, sp.sec, sp.csc)


class _NotAlgebraic(Exception):
    pass


def root_bound(tree: sp.Expr, value: Callable[[sp.Basic], Any]) -> float:
    """B so that `tree` is zero if it is nearer to zero than 2^-B; infinite if it is not known to be algebraic.

    `value` gives a part's value, a `Fraction` where it is rational.
    """
    size = _Size(value)
    try:
        upper, lower = size.of(tree)
    except (_NotAlgebraic, RecursionError):
        return math.inf
    degree = math.prod(size.roots.values()) * int(sp.totient(math.lcm(*size.circles)))
    return (degree - 1) * upper + lower + 2 if degree < LARGEST_DEGREE else math.inf


class _Size:
    """Logarithms to base two of the bounds u and l of the paper, and the degrees of the extensions met."""

    def __init__(self, value: Callable[[sp.Basic], Any]) -> None:
        self.value = value
        self.roots: dict[Any, int] = {}
        self.circles: list[int] = [1]

    def of(self, tree: sp.Basic) -> tuple[float, float]:
        """(log u, log l): bounds of all conjugates of a numerator and a denominator, both algebraic integers, whose quotient is
        `tree`."""
        value = self.value(tree)
        if isinstance(value, Fraction):
            return float(abs(value.numerator).bit_length()), float(value.denominator.bit_length())
        if tree is sp.I:
            self.roots[sp.I] = 2
            return 0.0, 0.0
        kind = tree.func
        if kind is sp.UnevaluatedExpr or (kind is sp.Abs and not isinstance(self.value(tree.args[0]), iv.mpc)):
            return self.of(tree.args[0])
        if kind is sp.Add:
            sizes = [self.of(arg) for arg in tree.args]
            lower = sum(size[1] for size in sizes)
            return max(lower - size[1] + size[0] for size in sizes) + math.ceil(math.log2(len(sizes))), lower
        if kind is sp.Mul:
            sizes = [self.of(arg) for arg in tree.args]
            return sum(size[0] for size in sizes), sum(size[1] for size in sizes)
        if kind is sp.Pow and isinstance(exponent := self.value(tree.args[1]), Fraction):
            upper, lower = self.of(tree.args[0])
            index = exponent.denominator
            if index > 1:
                self.roots[tree.args[0], index] = index
                if upper >= lower:
                    upper = (upper + (index - 1) * lower) / index
                else:
                    lower = ((index - 1) * upper + lower) / index
            if exponent < 0:
                upper, lower = lower, upper
            return abs(exponent.numerator) * upper, abs(exponent.numerator) * lower
        if kind in _TRIG and (halves := halves_of(tree.args[0])) is not None:
            self.circles.append(math.lcm(4, 2 * halves.denominator))
            return 1.0, 1.0
        if kind is sp.exp and (halves := halves_of(sp.expand(-sp.I * tree.args[0].doit()))) is not None:
            self.circles.append(2 * halves.denominator)
            return 0.0, 0.0
        raise _NotAlgebraic


def halves_of(arg: sp.Expr) -> Fraction | None:
    """`arg` divided by pi, if that is rational."""
    ratio = _pi_coefficient(arg)
    return None if ratio is None else Fraction(int(ratio.p), int(ratio.q))


@lru_cache(maxsize=1024)
def _pi_coefficient(arg: sp.Expr) -> sp.Rational | None:
    if arg.free_symbols or not arg.has(sp.pi):
        return None
    ratio = sp.expand(arg.doit() / sp.pi)
    return ratio if isinstance(ratio, sp.Rational) else None
