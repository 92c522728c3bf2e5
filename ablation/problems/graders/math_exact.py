r"""Whether two expressions have the same value: exactly, and never after rounding.

- What is rational is an exact fraction of bounded size: factorials, binomials, powers and sums of them, too.
- Everything else is enclosed in an interval (mpmath's, rounded outward), with more digits until the two are apart. Two that stay
  together are the same if that is proven: an algebraic number that is nearer to zero than its root bound is zero (Burnikel,
  Funke, Mehlhorn, Schirra, Schmitt, "A separation bound for real algebraic expressions", ESA 2001; the roots of unity of sines
  and cosines are extensions like the other roots), and a relation between logarithms, powers of e and pi holds if it holds for
  any values in their place. Otherwise `NotComparable`.
- Expressions with letters are compared at points of both signs, where both are defined and real: apart at one point, they are not
  the same; the same if all points agree, by a proof or to more than a thousand digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy as sp
from mpmath import iv, libmp
from sympy.core.function import AppliedUndef

LARGEST = 1_000_000
"""Bits of an exact fraction's numerator or denominator."""
FIRST_BITS, LAST_BITS, MOST_BITS = 128, 4_096, 200_000
"""Working precision: of the first try, of the last, and of the last where the numbers themselves are long."""
POINTS, MOST_POINTS = 6, 40
"""Points at which two expressions with letters must be defined, and how many are tried."""

_TRIG: dict[type, Callable[[Any, Any], Any]] = {  # of the sine and the cosine
    sp.sin: lambda sine, cosine: sine,
    sp.cos: lambda sine, cosine: cosine,
    sp.tan: lambda sine, cosine: sine / cosine,
    sp.cot: lambda sine, cosine: cosine / sine,
    sp.sec: lambda sine, cosine: 1 / cosine,
    sp.csc: lambda sine, cosine: 1 / sine,
}
_HYPERBOLIC: dict[type, Callable[[sp.Expr], sp.Expr]] = {
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
_LAZY = (sp.Sum, sp.Product, sp.Integral, sp.Derivative, sp.Limit)


class NotComparable(Exception):
    """Neither proven to be the same nor found to be apart."""


class TooLarge(Exception):
    """A number of more than `LARGEST` bits."""


class Undefined(Exception):
    """No value: a division by zero, for instance."""


class _Wide(Exception):
    """More digits are needed."""


class _NotAlgebraic(Exception):
    pass


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
    return one == other or _is_zero(_minus(one, other), {}, is_complex, known=False)


def order(one: sp.Expr, other: sp.Expr) -> int:
    """-1, 0 or 1: whether `one`, a real number, is less than `other`, the same or more. Raises what `same` raises."""
    if same(one, other):
        return 0
    difference = _minus(_ready(one), _ready(other))
    for bits in _precisions(difference):
        try:
            value = _Evaluation(bits, {}, False).value(difference)
        except _Wide:
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
    for bits in _precisions(tree):
        try:
            value = _Evaluation(bits, {}, False).value(tree)
        except _Wide:
            continue
        if isinstance(value, Fraction):
            return value == decimal
        if isinstance(value, iv.mpc):
            return False
        low, high = _ends(value)
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
            _Evaluation(FIRST_BITS, {}, False).value(_ready(tree))
        except (_Wide, NotComparable, TooLarge):
            return


def rational(tree: sp.Expr) -> Fraction | None:
    """The value of an expression without letters, if rational arithmetic alone gives it."""
    if tree.free_symbols or tree.has(sp.oo, -sp.oo, sp.nan, sp.zoo):
        return None
    try:
        found = _Evaluation(FIRST_BITS, {}, False).value(_ready(tree))
    except (_Wide, NotComparable):
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


def _minus(one: sp.Expr, other: sp.Expr) -> sp.Expr:
    return sp.Add(one, sp.Mul(-1, other, evaluate=False), evaluate=False)


def _precisions(tree: sp.Expr) -> Iterable[int]:
    """Growing, up to what tells numbers apart that differ by the smallest one written in `tree`."""
    longest = max((part.p.bit_length() + part.q.bit_length() for part in tree.atoms(sp.Rational)), default=0)
    powers = sum(abs(int(part.exp)) for part in tree.atoms(sp.Pow) if part.exp.is_Integer and abs(part.exp) < MOST_BITS)
    last = min(LAST_BITS + 2 * (longest + powers), MOST_BITS)
    bits = FIRST_BITS
    while bits < last:
        yield bits
        bits *= 4
    yield last


def _is_zero(tree: sp.Expr, at: dict, is_complex: bool, *, known: bool) -> bool:
    """`known`: `tree` is algebraic, so that no other proof need be tried."""
    bound = None
    value: Any = None
    for bits in _precisions(tree):
        evaluation = _Evaluation(bits, at, is_complex)
        try:
            value = evaluation.value(tree)
        except _Wide:
            continue
        if isinstance(value, Fraction):
            return value == 0
        if not _holds_zero(value):
            return False
        if bound is None:
            bound = evaluation.root_bound(tree)
        if bound < MOST_BITS and _below(value, bound):
            return True
    if bound is not None and bound < MOST_BITS:
        try:
            value = _Evaluation(int(bound) + FIRST_BITS, at, is_complex).value(tree)
        except _Wide:
            raise NotComparable from None
        return value == 0 if isinstance(value, Fraction) else _below(value, bound) or _apart(value)
    if not known and value is not None and not at and _holds_in_general(tree, is_complex):
        return True
    raise NotComparable


def _apart(value: Any) -> bool:
    """False if `value` is not zero."""
    if _holds_zero(value):
        raise NotComparable
    return False


def _parts(value: Any) -> list[Any]:
    return [value.real, value.imag] if isinstance(value, iv.mpc) else [value]


def _holds_zero(value: Any) -> bool:
    return all(0 in part for part in _parts(value))


def _below(value: Any, bits: float) -> bool:
    """Whether the interval lies within 2^-bits of zero."""
    limit = libmp.mpf_shift(libmp.fone, -math.ceil(bits) - 1)
    return all(libmp.mpf_le(libmp.mpf_abs(end), limit) for part in _parts(value) for end in part._mpi_)


def _ends(value: Any) -> tuple[Fraction, Fraction]:
    low, high = (Fraction(*libmp.to_rational(end)) for end in value._mpi_)
    return low, high


def _same_at_points(one: sp.Expr, other: sp.Expr, letters: list[sp.Symbol], is_complex: bool) -> bool:
    """Apart at one point: not the same."""
    difference, found = _minus(one, other), 0
    for at in _points(letters):
        try:
            if not is_complex and any(_is_not_real(side, at) for side in (one, other)):
                continue
            if not _is_zero(difference, at, is_complex, known=False):
                return False
        except (Undefined, _Wide):
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
    value = _Evaluation(4 * FIRST_BITS, at, False).value(tree)
    return isinstance(value, iv.mpc) and 0 not in value.imag


def _agree(difference: sp.Expr, at: dict, is_complex: bool) -> bool:
    """Whether the difference is as good as zero at the last precision."""
    *_, bits = _precisions(difference)
    try:
        value = _Evaluation(bits, at, is_complex).value(difference)
    except _Wide:
        return False
    return _below(value, bits / 2)


class _Evaluation:
    """The values of an expression's parts, at one precision: a `Fraction` where it is exact, else an interval of mpmath."""

    def __init__(self, bits: int, at: dict, is_complex: bool) -> None:
        self.bits, self.at, self.is_complex = bits, at, is_complex
        self._values: dict[sp.Basic, Any] = {}

    def value(self, tree: sp.Expr) -> Any:
        """Raises `_Wide`, `Undefined`, `TooLarge`, `NotComparable`."""
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
        if kind in _TRIG:
            return self._trig(kind, tree.args[0])
        if kind in _HYPERBOLIC:
            return self._of(_HYPERBOLIC[kind](tree.args[0]))
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
        if _holds_zero(bottom):
            raise _Wide
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
                raise _Wide
        elif base < 0:
            return self._product(
                [self._root(-base, index), *([Fraction(-1)] if self._is_odd(index) else [self._turned(Fraction(1, index))])]
            )
        base = _interval(base)
        return iv.sqrt(base) if index == 2 else iv.exp(iv.ln(base) / index) if 0 not in base else self._raise_wide()

    def _is_odd(self, index: int) -> bool:
        return bool(index % 2) and not self.is_complex

    def _raise_wide(self) -> Any:
        raise _Wide

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
            if _holds_zero(value) or (0 in value.imag and not value.real > 0):
                raise _Wide
            return iv.ln(value)
        if 0 in value:
            raise _Wide
        return iv.ln(value) if value > 0 else iv.mpc(iv.ln(-value), iv.mpf(iv.pi))

    def _trig(self, kind: type, arg: sp.Expr) -> Any:
        turns = self._halves(arg)
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

    def _halves(self, arg: sp.Expr) -> Fraction | None:
        """`arg` divided by pi, if that is rational."""
        ratio = _pi_coefficient(arg)
        return None if ratio is None else Fraction(int(ratio.p), int(ratio.q))

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
            raise _Wide if 0 in rest else NotComparable
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
            if self.bits == FIRST_BITS and _is_zero(tree, self.at, self.is_complex, known=False):
                return 0
            raise _Wide
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
        low, high = map(math.floor, _ends(value))
        if low == high:
            return Fraction(low)
        if high == low + 1 and self._sign(sp.Add(tree, -high, evaluate=False)) == 0:
            return Fraction(high)
        raise _Wide

    def _extreme(self, tree: sp.Expr) -> Any:
        best, *others = tree.args
        for other in others:
            bigger = self._sign(_minus(other, best)) > 0
            best = other if bigger == (tree.func is sp.Max) else best
        return self._of(best)

    def root_bound(self, tree: sp.Expr) -> float:
        """B so that `tree` is zero if it is nearer to zero than 2^-B; infinite if it is not known to be algebraic."""
        roots: dict[Any, int] = {}
        circles: list[int] = [1]
        try:
            upper, lower = self._size(tree, roots, circles)
        except (_NotAlgebraic, RecursionError):
            return math.inf
        degree = math.prod(roots.values()) * int(sp.totient(math.lcm(*circles)))
        return (degree - 1) * upper + lower + 2 if degree < MOST_BITS else math.inf

    def _size(self, tree: sp.Basic, roots: dict, circles: list[int]) -> tuple[float, float]:
        """Logarithms to base two of the bounds u and l of the paper: of all conjugates of a numerator and a denominator, both
        algebraic integers, whose quotient is `tree`."""
        value = self._of(tree)
        if isinstance(value, Fraction):
            return float(abs(value.numerator).bit_length()), float(value.denominator.bit_length())
        if tree is sp.I:
            roots[sp.I] = 2
            return 0.0, 0.0
        kind = tree.func
        if kind is sp.UnevaluatedExpr or (kind is sp.Abs and not isinstance(self._of(tree.args[0]), iv.mpc)):
            return self._size(tree.args[0], roots, circles)
        if kind is sp.Add:
            sizes = [self._size(arg, roots, circles) for arg in tree.args]
            lower = sum(size[1] for size in sizes)
            return max(lower - size[1] + size[0] for size in sizes) + math.ceil(math.log2(len(sizes))), lower
        if kind is sp.Mul:
            sizes = [self._size(arg, roots, circles) for arg in tree.args]
            return sum(size[0] for size in sizes), sum(size[1] for size in sizes)
        if kind is sp.Pow and isinstance(exponent := self._of(tree.args[1]), Fraction):
            upper, lower = self._size(tree.args[0], roots, circles)
            index = exponent.denominator
            if index > 1:
                roots[tree.args[0], index] = index
                if self._of_is_negative(tree.args[0]):  # the principal root is the real one, turned
                    circles.append(2 * index)
                if upper >= lower:
                    upper = (upper + (index - 1) * lower) / index
                else:
                    lower = ((index - 1) * upper + lower) / index
            if exponent < 0:
                upper, lower = lower, upper
            return abs(exponent.numerator) * upper, abs(exponent.numerator) * lower
        if kind in _TRIG and (halves := self._halves(tree.args[0])) is not None:
            circles.append(math.lcm(4, 2 * halves.denominator))
            return 1.0, 1.0
        if kind is sp.exp and (halves := self._halves(sp.expand(-sp.I * tree.args[0].doit()))) is not None:
            circles.append(2 * halves.denominator)
            return 0.0, 0.0
        raise _NotAlgebraic

    def _of_is_negative(self, tree: sp.Basic) -> bool:
        value = self._of(tree)
        return isinstance(value, iv.mpc) or bool(value < 0)


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


@lru_cache(maxsize=1024)
def _pi_coefficient(arg: sp.Expr) -> sp.Rational | None:
    if arg.free_symbols or not arg.has(sp.pi):
        return None
    ratio = sp.expand(arg.doit() / sp.pi)
    return ratio if isinstance(ratio, sp.Rational) else None


def _holds_in_general(tree: sp.Expr, is_complex: bool) -> bool:
    """Whether `tree` is zero for any values of pi, e and the logarithms of primes in it."""
    try:
        free = _freed(tree, is_complex)
        letters = sorted(free.free_symbols, key=str)
        points = [
            {letter: Fraction(10_007 + 613 * point + 97 * place, 2_003 + 31 * place) for place, letter in enumerate(letters)}
            for point in range(3)
        ]
        if all(_is_zero(free, at, is_complex, known=True) for at in points):
            return True
    except (NotComparable, Undefined, TooLarge, _Wide):
        pass
    return sp.simplify(tree) == 0


def _freed(tree: sp.Basic, is_complex: bool) -> sp.Expr:
    """`tree` with a letter for pi, for e, for the logarithm of each prime, and for whatever else is not algebraic."""
    if tree is sp.pi:
        return sp.Symbol("pi", positive=True)
    if tree is sp.E:
        return sp.Symbol("e", positive=True)
    if isinstance(tree, sp.Rational) or tree is sp.I:
        return tree
    value = _Evaluation(4 * FIRST_BITS, {}, is_complex).value(tree)
    if isinstance(value, Fraction):
        return sp.Rational(value.numerator, value.denominator)
    kind = tree.func
    if kind in (sp.Add, sp.Mul):
        return kind(*(_freed(arg, is_complex) for arg in tree.args))
    if kind is sp.UnevaluatedExpr:
        return _freed(tree.args[0], is_complex)
    if kind is sp.log:
        logs = [_freed_log(arg, is_complex) for arg in tree.args]
        return logs[0] if len(logs) == 1 else logs[0] / logs[1]
    if kind is sp.Pow and isinstance(tree.args[1], sp.Rational):
        return _freed(tree.args[0], is_complex) ** tree.args[1]
    if kind is sp.exp:
        return _freed_exp(sp.expand(_freed(tree.args[0], is_complex)))
    if kind is sp.Pow:
        power = _freed(tree.args[1], is_complex) * _freed_log(tree.args[0], is_complex)
        return _freed_exp(sp.expand(sp.cancel(power)))
    if kind in _TRIG and _pi_coefficient(tree.args[0]) is not None:
        return tree
    if kind in _HYPERBOLIC:
        return _freed(_HYPERBOLIC[kind](tree.args[0]), is_complex)
    if kind in (sp.asin, sp.acos, sp.atan) and (halves := _arc_halves(kind, tree.args[0], value)) is not None:
        return halves * sp.Symbol("pi", positive=True)
    return sp.Symbol(sp.srepr(tree), positive=True)


def _freed_log(tree: sp.Basic, is_complex: bool) -> sp.Expr:
    if tree is sp.E:
        return sp.Integer(1)
    value = _Evaluation(4 * FIRST_BITS, {}, is_complex).value(tree)
    if isinstance(value, Fraction) and value > 0:
        found = sp.Integer(0)
        for number, sign in ((value.numerator, 1), (value.denominator, -1)):
            for prime, times in sp.factorint(number, limit=10_000).items():
                found += sign * times * sp.Symbol(f"log {prime}", positive=True)
        return found
    if isinstance(value, iv.mpf) and value > 0:
        if tree.func is sp.exp:
            return _freed(tree.args[0], is_complex)
        if tree.func is sp.Pow:
            return _freed(tree.args[1], is_complex) * _freed_log(tree.args[0], is_complex)
        if tree.func is sp.Mul:
            return sp.Add(*(_freed_log(arg, is_complex) for arg in tree.args))
    return sp.Symbol(f"log of {sp.srepr(tree)}", positive=True)


def _freed_exp(power: sp.Expr) -> sp.Expr:
    found: sp.Expr = sp.Integer(1)
    for term in sp.Add.make_args(power):
        number, letter = term.as_coeff_Mul()
        if letter == 1:
            found *= sp.Symbol("e", positive=True) ** number
        elif isinstance(letter, sp.Symbol) and letter.name.startswith("log ") and letter.name[4:].isdigit():
            found *= sp.Integer(int(letter.name[4:])) ** number
        else:
            found *= sp.Symbol(f"exp of {sp.srepr(letter)}", positive=True) ** number
    return found


def _arc_halves(kind: type, arg: sp.Expr, value: Any) -> sp.Rational | None:
    """The angle divided by pi, if it is a fraction with a denominator of at most 120: found by its value, then proven."""
    if not isinstance(value, iv.mpf):
        return None
    iv.prec = 4 * FIRST_BITS
    low, high = _ends(value / iv.mpf(iv.pi))
    halves = ((low + high) / 2).limit_denominator(120)
    if not low <= halves <= high:
        return None
    back = {sp.asin: sp.sin, sp.acos: sp.cos, sp.atan: sp.tan}[kind]
    angle = sp.Rational(halves.numerator, halves.denominator)
    try:
        proven = _is_zero(_minus(back(angle * sp.pi, evaluate=False), arg), {}, False, known=True)
    except (NotComparable, Undefined):
        return None
    return angle if proven else None
