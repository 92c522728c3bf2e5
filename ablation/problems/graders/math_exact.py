r"""Whether two expressions have the same value: exactly, and never after rounding.

- What is rational is an exact fraction of bounded size: factorials, binomials, powers and sums of them, too.
- Everything else is enclosed in an interval (`math_values`), with more digits until the two are apart. Two that stay together are
  the same if that is proven, by a root bound (`math_bound`) or as a relation between logarithms, powers of e and pi
  (`math_proofs`). Otherwise `NotComparable`.
- Expressions with letters are compared at points of both signs, where both are defined and real: apart at one point, they are not
  the same; the same if all points agree, by a proof or to more than a thousand digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import sympy as sp
from mpmath import iv
from sympy.core.function import AppliedUndef

from ablation.problems.graders.math_proofs import holds_in_general
from ablation.problems.graders.math_values import (
    FIRST_BITS,
    Evaluation,
    NotComparable,
    TooLarge,
    Undefined,
    Wide,
    below,
    ends,
    is_zero,
    minus,
    precisions,
)

POINTS, MOST_POINTS = 6, 40
"""Points at which two expressions with letters must be defined, and how many are tried."""

_LAZY = (sp.Sum, sp.Product, sp.Integral, sp.Derivative, sp.Limit)


def same(one: sp.Expr, other: sp.Expr, *, is_complex: bool = False) -> bool:
    """Whether both have the same value; with letters, at every point.

    Raises:
        NotComparable, TooLarge
        Undefined: one of them has no value.
    """
    one, other = _ready(one), _ready(other)
    letters = sorted(one.free_symbols | other.free_symbols, key=str)
    if letters:
        return one == other or _same_at_points(one, other, letters, is_complex)
    if one.has(sp.oo, -sp.oo) or other.has(sp.oo, -sp.oo):
        return _ready(one.doit()) == _ready(other.doit())
    return one == other or _is_zero(minus(one, other), {}, is_complex)


def order(one: sp.Expr, other: sp.Expr) -> int:
    """-1, 0 or 1: whether `one`, a real number, is less than `other`, the same or more. Raises what `same` raises."""
    if same(one, other):
        return 0
    difference = minus(_ready(one), _ready(other))
    for bits in precisions(difference):
        try:
            value = Evaluation(bits, {}, False).value(difference)
        except Wide:
            continue
        if isinstance(value, iv.mpc):
            break
        if isinstance(value, Fraction) or 0 not in value:
            return 1 if value > 0 else -1
    raise NotComparable


def rounds_to(decimal: Fraction, tree: sp.Expr) -> bool:
    """Whether the value of `tree`, which is not rational, and `decimal` are the same to six places, or to three digits where that
    is finer."""
    tree = _ready(tree)
    for bits in precisions(tree):
        try:
            value = Evaluation(bits, {}, False).value(tree)
        except Wide:
            continue
        if isinstance(value, Fraction):
            return value == decimal
        if isinstance(value, iv.mpc):
            return False
        low, high = ends(value)
        if low <= 0 <= high:
            continue
        near = min(abs(low), abs(high))
        places = max(6, 2 - math.floor(math.log10(near))) if near > Fraction(1, 10**300) else 6
        rounded = {round(end, places) for end in (low, high)}
        if len(rounded) == 1:
            return rounded == {round(decimal, places)}
    raise NotComparable


def check_defined(tree: sp.Expr) -> None:
    """Raises `Undefined` if an expression without letters has no value."""
    if not tree.free_symbols and not tree.has(sp.oo, -sp.oo):
        try:
            Evaluation(FIRST_BITS, {}, False).value(_ready(tree))
        except (Wide, NotComparable, TooLarge):
            return


def rational(tree: sp.Expr) -> Fraction | None:
    """The value of an expression without letters, if rational arithmetic alone gives it."""
    if tree.free_symbols or tree.has(sp.oo, -sp.oo, sp.nan, sp.zoo):
        return None
    try:
        found = Evaluation(FIRST_BITS, {}, False).value(_ready(tree))
    except (Wide, NotComparable):
        return None
    return found if isinstance(found, Fraction) else None


def settled(tree: Any) -> Any:
    """`tree` with every rational part of it written as one number."""
    if isinstance(tree, sp.Expr) and not tree.is_Rational and (value := rational(tree)) is not None:
        return sp.Rational(value.numerator, value.denominator)
    if isinstance(tree, sp.MatrixBase):
        return tree.applyfunc(settled)
    if not tree.args or isinstance(tree, sp.UnevaluatedExpr):
        return tree
    return tree.func(*(settled(arg) for arg in tree.args))


def _ready(tree: sp.Expr) -> sp.Expr:
    """Without sums, limits and the like, and with `f(x)` as a letter of its own."""
    if tree.has(*_LAZY):
        tree = tree.doit()
        if tree.has(*_LAZY):
            raise NotComparable
    if tree.has(sp.nan, sp.zoo):
        raise Undefined
    return tree.replace(lambda part: isinstance(part, AppliedUndef), lambda part: sp.Symbol(str(part), real=True))


def _is_zero(tree: sp.Expr, at: dict, is_complex: bool) -> bool:
    try:
        return is_zero(tree, at, is_complex)
    except NotComparable:
        if not at and holds_in_general(tree, is_complex):
            return True
        raise


def _same_at_points(one: sp.Expr, other: sp.Expr, letters: list[sp.Symbol], is_complex: bool) -> bool:
    """Apart at one point: not the same."""
    difference, found = minus(one, other), 0
    for at in _points(letters):
        try:
            if not is_complex and any(_is_not_real(side, at) for side in (one, other)):
                continue
            if not _is_zero(difference, at, is_complex):
                return False
        except (Undefined, Wide):
            continue
        except NotComparable:
            if not _agree(difference, at, is_complex):
                continue
        found += 1
        if found == POINTS:
            return True
    if not is_complex:  # hardly anywhere real
        return _same_at_points(one, other, letters, True)
    raise NotComparable


def _points(letters: list[sp.Symbol]) -> Iterable[dict]:
    """Fractions of either sign and whole numbers, small and above one."""
    primes = (7, 11, 13, 17, 19, 23, 31, 37, 41, 43, 47, 53, 59)
    for point in range(MOST_POINTS):
        at = {}
        for place, letter in enumerate(letters):
            top = primes[(3 * point + place) % len(primes)]
            if point % 4 == 3:
                at[letter] = Fraction(2 + point // 4 + place)
            else:
                sign = -1 if (point + place) % 2 and point % 4 != 2 else 1
                at[letter] = Fraction(sign * top, 29 + place if point % 4 < 2 else 5 + place)
        yield at


def _is_not_real(tree: sp.Expr, at: dict) -> bool:
    value = Evaluation(4 * FIRST_BITS, at, False).value(tree)
    return isinstance(value, iv.mpc) and 0 not in value.imag


def _agree(difference: sp.Expr, at: dict, is_complex: bool) -> bool:
    """Whether the difference is as good as zero at the last precision."""
    *_, bits = precisions(difference)
    try:
        value = Evaluation(bits, at, is_complex).value(difference)
    except Wide:
        return False
    return below(value, bits / 2)
