r"""The values of expressions: exact fractions of bounded size, else intervals around the value, and when a value is zero.

Intervals are mpmath's, rounded outward. Zero is proven for algebraic numbers: one that is nearer to zero than its root bound is
zero (`math_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy as sp
from mpmath import iv, libmp

from ablation.problems.graders.math_bound import halves_of, root_bound

LARGEST = 1_000_000
"""Bits of an exact fraction's numerator or denominator."""
FIRST_BITS, LAST_BITS, MOST_BITS = 128, 4_096, 200_000
"""Working precision: of the first try, of the last, and of the last where the numbers themselves are long."""
TRIG: dict[type, Callable[[Any, Any], Any]] = {  # of the sine and the cosine
    sp.sin: lambda sine, cosine: sine,
    sp.cos: lambda sine, cosine: cosine,
    sp.tan: lambda sine, cosine: sine / cosine,
    sp.cot: lambda sine, cosine: cosine / sine,
    sp.sec: lambda sine, cosine: 1 / cosine,
    sp.csc: lambda sine, cosine: 1 / sine,
}
HYPERBOLIC: dict[type, Callable[[sp.Expr], sp.Expr]] = {
    sp.sinh: lambda x: (sp.exp(x) - sp.exp(-x)) / 2,
    sp.cosh: lambda x: (sp.exp(x) + sp.exp(-x)) / 2,
    sp.tanh: lambda x: (sp.exp(2 * x) - 1) / (sp.exp(2 * x) + 1),
    sp.coth: lambda x: (sp.exp(2 * x) + 1) / (sp.exp(2 * x) - 1),
    sp.asinh: lambda x: sp.log(x + sp.sqrt(x**2 + 1)),
    sp.acosh: lambda x: sp.log(x + sp.sqrt(x**2 - 1)),
    sp.atanh: lambda x: sp.log((1 + x) / (1 - x)) / 2,
    sp.acot: lambda x: sp.atan(1 / x),
    sp.asec: lambda x: sp.acos(1 / x),
    sp.acsc: lambda x: sp.asin(1 / x),
}


class NotComparable(Exception):
    """Neither proven to be the same nor found to be apart."""


class TooLarge(Exception):
    """A number of more than `LARGEST` bits."""


class Undefined(Exception):
    """No value: a division by zero, for instance."""


class Wide(Exception):
    """More digits are needed."""


class _NotAlgebraic(Exception):
    pass


def minus(one: sp.Expr, other: sp.Expr) -> sp.Expr:
    return sp.Add(one, sp.Mul(-1, other, evaluate=False), evaluate=False)


def precisions(tree: sp.Expr) -> Iterable[int]:
    """Growing, up to what tells numbers apart that differ by the smallest one written in `tree`."""
    last = min(LAST_BITS + 2 * _longest(tree), MOST_BITS)
    bits = FIRST_BITS
    while bits < last:
        yield bits
        bits *= 4
    yield last


@lru_cache(maxsize=256)
def _longest(tree: sp.Expr) -> int:
    """Bits of the longest rational part."""
    evaluation, longest = Evaluation(FIRST_BITS, {}, False), 0
    for part in sp.preorder_traversal(tree):
        if isinstance(part, sp.Expr) and not part.free_symbols:
            with suppress(Wide, Undefined, NotComparable):
                if isinstance(value := evaluation.value(part), Fraction):
                    longest = max(longest, value.numerator.bit_length() + value.denominator.bit_length())
    return longest


def is_zero(tree: sp.Expr, at: dict, is_complex: bool) -> bool:
    """Raises `NotComparable` if an interval around it holds zero and it is not known to be algebraic."""
    bound = None
    for bits in precisions(tree):
        evaluation = Evaluation(bits, at, is_complex)
        try:
            value = evaluation.value(tree)
        except Wide:
            continue
        if isinstance(value, Fraction):
            return value == 0
        if not holds_zero(value):
            return False
        if bound is None:
            bound = root_bound(tree, evaluation.value)
        if bound < MOST_BITS and below(value, bound):
            return True
    if bound is not None and bound < MOST_BITS:
        try:
            value = Evaluation(2 * int(bound) + FIRST_BITS, at, is_complex).value(tree)
        except Wide:
            raise NotComparable from None
        return value == 0 if isinstance(value, Fraction) else below(value, bound) or _apart(value)
    raise NotComparable


def _apart(value: Any) -> bool:
    """False if `value` is not zero."""
    if holds_zero(value):
        raise NotComparable
    return False


def _parts(value: Any) -> list[Any]:
    return [value.real, value.imag] if isinstance(value, iv.mpc) else [value]


def holds_zero(value: Any) -> bool:
    return all(0 in part for part in _parts(value))


def below(value: Any, bits: float) -> bool:
    """Whether the interval lies within 2^-bits of zero."""
    limit = libmp.mpf_shift(libmp.fone, -math.ceil(bits) - 1)
    return all(libmp.mpf_le(libmp.mpf_abs(end), limit) for part in _parts(value) for end in part._mpi_)


def ends(value: Any) -> tuple[Fraction, Fraction]:
    low, high = (Fraction(*libmp.to_rational(end)) for end in value._mpi_)
    return low, high


class Evaluation:
    """The values of an expression's parts, at one precision: a `Fraction` where it is exact, else an interval of mpmath."""

    def __init__(self, bits: int, at: dict, is_complex: bool) -> None:
        self.bits, self.at, self.is_complex = bits, at, is_complex
        self._values: dict[sp.Basic, Any] = {}

    def value(self, tree: sp.Expr) -> Any:
        """Raises `Wide`, `Undefined`, `TooLarge`, `NotComparable`."""
        iv.prec = self.bits
        return self._of(tree)

    def _of(self, tree: sp.Basic) -> Any:
        if tree not in self._values:
            self._values[tree] = found = self._found(tree)
            if isinstance(found, Fraction) and max(found.numerator.bit_length(), found.denominator.bit_length()) > LARGEST:
                raise TooLarge
        return self._values[tree]

    def _found(self, tree: sp.Basic) -> Any:
        if isinstance(tree, sp.Rational):
            return Fraction(int(tree.p), int(tree.q))
        if tree in self.at:
            return self.at[tree]
        if tree is sp.pi:
            return iv.mpf(iv.pi)
        if tree is sp.E:
            return iv.mpf(iv.e)
        if tree is sp.I:
            return iv.mpc(0, 1)
        kind = tree.func
        if kind is sp.Add:
            return self._sum([self._of(arg) for arg in tree.args])
        if kind is sp.Mul:
            return self._product([self._of(arg) for arg in tree.args])
        if kind is sp.Pow:
            base, exponent = (self._of(arg) for arg in tree.args)
            if tree.args[1].free_symbols and not self.is_complex and _is_fraction_of(base, exponent):
                raise Undefined  # (-1)^x
            return self._power(base, exponent)
        if kind is sp.exp:
            return self._exp(self._of(tree.args[0]))
        if kind is sp.log:
            logs = [self._log(self._of(arg)) for arg in tree.args]
            return logs[0] if len(logs) == 1 else self._over(logs[0], logs[1])
        if kind in TRIG:
            return self._trig(kind, tree.args[0])
        if kind in HYPERBOLIC:
            return self._of(HYPERBOLIC[kind](tree.args[0]))
        if kind in (sp.asin, sp.acos, sp.atan):
            return self._arc(kind, self._of(tree.args[0]))
        if kind in (sp.factorial, sp.binomial):
            return self._whole_function(kind, [self._of(arg) for arg in tree.args])
        if kind is sp.UnevaluatedExpr:
            return self._of(tree.args[0])
        if kind is sp.Abs:
            return self._absolute(tree.args[0])
        if kind in (sp.floor, sp.ceiling):
            return self._floor(tree.args[0]) if kind is sp.floor else -self._floor(sp.Mul(-1, tree.args[0], evaluate=False))
        if kind in (sp.Max, sp.Min):
            return self._extreme(tree)
        if kind is sp.Mod:
            left, right = (self._of(arg) for arg in tree.args)
            if isinstance(left, Fraction) and isinstance(right, Fraction):
                return left % right if right else self._nothing()
        if kind in (sp.re, sp.im, sp.conjugate):
            value = self._of(tree.args[0])
            name = {sp.re: "real", sp.im: "imag"}.get(kind)
            if isinstance(value, Fraction):
                return Fraction(0) if kind is sp.im else value
            return getattr(value, name) if name else value.conjugate()
        raise NotComparable

    def _sum(self, values: list[Any]) -> Any:
        exact = sum((value for value in values if isinstance(value, Fraction)), Fraction(0))
        others = [value for value in values if not isinstance(value, Fraction)]
        return sum(others, _interval(exact)) if others else exact

    def _product(self, values: list[Any]) -> Any:
        exact = Fraction(1)
        for value in values:
            if isinstance(value, Fraction):
                exact *= value
        others = [value for value in values if not isinstance(value, Fraction)]
        if not others or exact == 0:
            return exact
        found = _interval(exact)
        for value in others:
            found = found * value
        return found

    def _over(self, top: Any, bottom: Any) -> Any:
        if isinstance(bottom, Fraction):
            return self._product([top, 1 / bottom if bottom else self._nothing()])
        if holds_zero(bottom):
            raise Wide
        return _interval(top) / bottom

    def _nothing(self) -> Any:
        raise Undefined

    def _power(self, base: Any, exponent: Any) -> Any:
        if not isinstance(exponent, Fraction):
            if isinstance(base, Fraction) and base == 1:
                return base
            return self._exp(self._product([exponent, self._log(base)]))
        if exponent == 0:
            return Fraction(1)
        if exponent < 0:
            return self._over(Fraction(1), self._power(base, -exponent))
        return self._whole_power(self._root(base, exponent.denominator), exponent.numerator)

    def _whole_power(self, base: Any, exponent: int) -> Any:
        if isinstance(base, Fraction):
            if max(base.numerator.bit_length() - 1, base.denominator.bit_length() - 1) * exponent > LARGEST:
                raise TooLarge
            return base**exponent
        if exponent.bit_length() > 64:
            raise TooLarge
        found, power = None, base
        while exponent:
            if exponent & 1:
                found = power if found is None else found * power
            exponent >>= 1
            if exponent:
                power = power * power
        return found

    def _root(self, base: Any, index: int) -> Any:
        """The principal root; of a negative number and an odd index the real one, unless complex numbers are spoken of."""
        if index == 1:
            return base
        if isinstance(base, Fraction):
            if base < 0:
                if index % 2 and not self.is_complex:
                    return -self._root(-base, index)
                root = self._root(-base, index)
                return self._product([root, self._turned(Fraction(1, index))])
            exact = [_whole_root(part, index) for part in (base.numerator, base.denominator)]
            if None not in exact:
                return Fraction(*exact)
        elif isinstance(base, iv.mpc):
            return self._exp(self._log(base) / index)
        elif 0 in base:
            low, high = base._mpi_
            if low != libmp.fzero or high == libmp.fzero:
                raise Wide
        elif base < 0:
            return self._product(
                [self._root(-base, index), *([Fraction(-1)] if self._is_odd(index) else [self._turned(Fraction(1, index))])]
            )
        base = _interval(base)
        return iv.sqrt(base) if index == 2 else iv.exp(iv.ln(base) / index) if 0 not in base else self._raise_wide()

    def _is_odd(self, index: int) -> bool:
        return bool(index % 2) and not self.is_complex

    def _raise_wide(self) -> Any:
        raise Wide

    def _turned(self, halves: Fraction) -> Any:
        """e^(i pi `halves`)."""
        sine, cosine = self._circle(halves)
        return iv.mpc(_interval(cosine), _interval(sine))

    def _exp(self, power: Any) -> Any:
        if isinstance(power, Fraction) and power == 0:
            return Fraction(1)
        power = _interval(power)
        if any(libmp.mpf_gt(libmp.mpf_abs(end), libmp.from_int(1 << 40)) for part in _parts(power) for end in part._mpi_):
            raise TooLarge
        return iv.exp(power)

    def _log(self, value: Any) -> Any:
        if isinstance(value, Fraction):
            if value == 0:
                raise Undefined
            if value == 1:
                return Fraction(0)
        value = _interval(value)
        if isinstance(value, iv.mpc):
            if holds_zero(value) or (0 in value.imag and not value.real > 0):
                raise Wide
            return iv.ln(value)
        if 0 in value:
            raise Wide
        return iv.ln(value) if value > 0 else iv.mpc(iv.ln(-value), iv.mpf(iv.pi))

    def _trig(self, kind: type, arg: sp.Expr) -> Any:
        turns = halves_of(arg)
        if turns is not None:
            sine, cosine = self._circle(turns)
        else:
            value = _interval(self._of(arg))
            sine, cosine = iv.sin(value), iv.cos(value)
        bottom = {sp.tan: cosine, sp.sec: cosine, sp.cot: sine, sp.csc: sine}.get(kind)
        if bottom is None:
            return sine if kind is sp.sin else cosine
        top = {sp.tan: sine, sp.cot: cosine}.get(kind, Fraction(1))
        return self._over(top, bottom)

    def _circle(self, halves: Fraction) -> tuple[Any, Any]:
        """Sine and cosine of pi `halves`; exact where they are rational (Niven's theorem)."""
        halves %= 2
        found = []
        for turn in (halves, (halves + Fraction(1, 2)) % 2):
            known = {0: 0, 1: 1, 3: 2, 5: 1, 6: 0, 7: -1, 9: -2, 11: -1}
            sixths = turn * 6
            if sixths.denominator == 1 and int(sixths) in known:
                found.append(Fraction(known[int(sixths)], 2))
            else:
                found.append(iv.sin(iv.mpf(iv.pi) * _interval(turn)))
        return found[0], found[1]

    def _arc(self, kind: type, value: Any) -> Any:
        if isinstance(value, Fraction) and value == 0 and kind is not sp.acos:
            return Fraction(0)
        if isinstance(value, Fraction) and value == 1 and kind is sp.acos:
            return Fraction(0)
        value = _interval(value)
        if isinstance(value, iv.mpc):
            raise NotComparable
        if kind is sp.atan:
            return iv.atan2(value, iv.mpf(1))
        rest = (1 - value) * (1 + value)
        if not rest >= 0:
            raise Wide if 0 in rest else NotComparable if self.is_complex else Undefined
        root = iv.sqrt(rest)
        return iv.atan2(value, root) if kind is sp.asin else iv.atan2(root, value)

    def _whole_function(self, kind: type, values: list[Any]) -> Any:
        if not all(isinstance(value, Fraction) and value.denominator == 1 for value in values):
            raise Undefined if all(isinstance(value, Fraction) for value in values) else NotComparable
        numbers = [int(value) for value in values]
        if min(numbers) < 0 or max(numbers) > LARGEST // 10:
            raise Undefined if min(numbers) < 0 else TooLarge
        return Fraction(math.factorial(numbers[0]) if kind is sp.factorial else math.comb(*numbers))

    def _sign(self, tree: sp.Expr) -> int:
        value = self._of(tree)
        if isinstance(value, Fraction):
            return (value > 0) - (value < 0)
        if isinstance(value, iv.mpc):
            raise NotComparable
        if 0 in value:
            if self.bits == FIRST_BITS and is_zero(tree, self.at, self.is_complex):
                return 0
            raise Wide
        return 1 if value > 0 else -1

    def _absolute(self, tree: sp.Expr) -> Any:
        value = self._of(tree)
        return iv.sqrt(value.real**2 + value.imag**2) if isinstance(value, iv.mpc) else abs(value)

    def _floor(self, tree: sp.Expr) -> Fraction:
        value = self._of(tree)
        if isinstance(value, Fraction):
            return Fraction(math.floor(value))
        if isinstance(value, iv.mpc):
            raise NotComparable
        low, high = map(math.floor, ends(value))
        if low == high:
            return Fraction(low)
        if high == low + 1 and self._sign(sp.Add(tree, -high, evaluate=False)) == 0:
            return Fraction(high)
        raise Wide

    def _extreme(self, tree: sp.Expr) -> Any:
        best, *others = tree.args
        for other in others:
            bigger = self._sign(minus(other, best)) > 0
            best = other if bigger == (tree.func is sp.Max) else best
        return self._of(best)


def _interval(value: Any) -> Any:
    """An interval around `value`."""
    if isinstance(value, Fraction):
        top = iv.make_mpf((libmp.from_int(value.numerator, iv.prec, "d"), libmp.from_int(value.numerator, iv.prec, "u")))
        if value.numerator < 0:
            top = iv.make_mpf((libmp.from_int(value.numerator, iv.prec, "f"), libmp.from_int(value.numerator, iv.prec, "c")))
        if value.denominator == 1:
            return top
        bottom = (libmp.from_int(value.denominator, iv.prec, "f"), libmp.from_int(value.denominator, iv.prec, "c"))
        return top / iv.make_mpf(bottom)
    return value


def _is_fraction_of(base: Any, exponent: Any) -> bool:
    """Whether a negative number is raised to a power that is no integer."""
    is_whole = isinstance(exponent, Fraction) and exponent.denominator == 1
    return not is_whole and not isinstance(base, iv.mpc) and bool(base < 0)


def _whole_root(number: int, index: int) -> int | None:
    if number < 2:
        return number
    if index > number.bit_length():
        return None
    root, exact = sp.integer_nthroot(number, index)
    return int(root) if exact else None
