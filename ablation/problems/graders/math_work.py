"""What a worker process does for `math`: parse both sides and compare what text rules cannot.

Numbers and expressions are compared by `math_exact`, exactly. math-verify compares relations and sets, and asks `math_exact` for
the numbers in them. Only LaTeX is parsed, by a grammar; no text is ever evaluated as a program.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cmp_to_key, lru_cache
from typing import Any

import sympy as sp
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from latex2sympy2_extended.logic import And
from math_verify import grader as math_verify
from sympy.core.relational import Relational

from ablation.problems.graders import math_exact
from ablation.problems.graders.math_form import Form, Unreadable, read_form, values
from ablation.problems.graders.math_same import same

# Parsed before work begins, so that a worker's child starts with a warm parser.
_WARM = (
    r"\frac{\sqrt{2}}{3}+x^2",
    r"\sin(\pi x)-\log_{2}{8}",
    r"\binom{5}{2}",
    "x<3",
    r"(1,2)\cup(3,4)",
    "2i+e^{x}",
    r"5!\cdot 3",
)
_IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
# The parser takes `\gamma(x)` for the gamma function and `\Gamma` alone for Euler's constant.
_NO_FUNCTIONS = ((re.compile(r"\\gamma(?![A-Za-z])"), "g_{amma}"), (re.compile(r"\\Gamma(?![A-Za-z])(?! *\()"), "G_{amma}"))
_DECIMAL = re.compile(r"\d*\.\d+")

_Latex2Sympy.parse_number = lambda self, text: sp.Rational(text.replace(",", ""))  # 0.1 is 1/10, whatever its length


def prepare() -> None:
    """Import what `work` needs, once for all children."""
    for text in _WARM:
        _same_value(text, text)


def work(item: list[str]) -> dict[str, Any]:
    """[gold, answer] -> {"same": bool}, or {"failed": why}: "gold" or "answer" if that is no mathematics, "compare" if it
    cannot be told, "time" if a number is too large."""
    sides: list[Form] = []
    for name, text in zip(("gold", "answer"), item, strict=True):
        try:
            sides.append(_read(text))
        except MemoryError:
            raise
        except Exception:
            return {"failed": name}
    try:
        return {"same": same(*sides, _same_value)}
    except MemoryError:
        raise
    except math_exact.TooLarge:
        return {"failed": "time"}
    except Exception:
        return {"failed": "compare"}


@lru_cache(maxsize=256)
def _read(text: str) -> Form:
    """The form of `text`, every value of it parsed. Raises whatever the parser raises if one of them is no mathematics."""
    form = read_form(text)
    for value in values(form):
        if value.exact is None and value.clock is None:
            for written in {value.text, value.text if value.name is None or value.has_plain_name else value.whole}:
                parsed = _parse(written, _is_complex(written))
                if isinstance(parsed, sp.Expr):
                    math_exact.check_defined(parsed)
    return form


def _same_value(gold: str, answer: str) -> bool:
    """If one of both texts speaks of complex numbers, both are read so."""
    is_complex = _is_complex(gold) or _is_complex(answer)
    decimals = {sign * Fraction(number) for number in _DECIMAL.findall(f"{gold} {answer}") for sign in (1, -1)}
    return _Comparison(is_complex, decimals).same(_parse(gold, is_complex), _parse(answer, is_complex))


def _is_complex(text: str) -> bool:
    return math_verify.should_treat_as_complex(text) or bool(_IMAGINARY.search(text))


@lru_cache(maxsize=1024)
def _parse(text: str, is_complex: bool) -> Any:
    """`text` as a sympy object; a free letter i is the imaginary unit. Relations joined by or, and are the set they hold for."""
    for word, join in ((r"\lor", sp.Union), (r"\land", sp.Intersection)):
        if len(sides := text.split(word)) > 1:
            relations = [_parse(side.strip(), is_complex) for side in sides]
            if len(set().union(*(one.free_symbols for one in relations))) > 1:
                raise Unreadable("relations of several letters")
            return join(*(math_verify.unwrap_fcs(one).as_set() for one in relations))
    for command, letter in _NO_FUNCTIONS:
        text = command.sub(letter, text)
    written = NormalizationConfig(basic_latex=True, units=False, malformed_operators=False, nits=True, boxed="none")
    parsed = latex2sympy(
        normalize_latex(text, config=written),
        is_real=None if is_complex else True,
        convert_degrees=False,
        normalization_config=None,
        conversion_config=ConversionConfig(lowercase_symbols=False),
    )
    if not isinstance(parsed, sp.Basic | sp.MatrixBase) or parsed in (sp.nan, sp.zoo):
        raise Unreadable("no value")
    if is_complex:
        parsed = parsed.subs({symbol: sp.I for symbol in parsed.free_symbols if symbol.name == "i"})
    return parsed


def _is_multiple(one: Relational, other: Relational) -> bool:
    """Whether `one` is `other` times a number: 2x > 4 and -x < -2."""
    (sign, above), (other_sign, other_above) = map(_above_zero, (one, other))
    if sign != other_sign:
        return False
    ratio = sp.cancel(above / other_above)
    return isinstance(ratio, sp.Rational) and (ratio > 0 or (ratio != 0 and sign in ("==", "!=")))


def _above_zero(relation: Relational) -> tuple[str, sp.Expr]:
    """(">", a - b) of a > b and of b < a."""
    above = math_exact.settled(relation.lhs) - math_exact.settled(relation.rhs)
    return (relation.rel_op.replace("<", ">"), -above if "<" in relation.rel_op else above)


def _as_sets(gold: Any, answer: Any) -> tuple[Any, Any]:
    """An inequality beside a set is the set of what it holds for, and so are two chains of them."""
    is_set = [isinstance(one, sp.Set) for one in (gold, answer)]
    if not any(is_set) and gold.free_symbols != answer.free_symbols:
        return gold, answer
    if is_set[0] != is_set[1] or all(isinstance(one, And) for one in (gold, answer)):
        try:
            return tuple(one if isinstance(one, sp.Set) else math_verify.unwrap_fcs(one).as_set() for one in (gold, answer))
        except Exception:
            pass
    return gold, answer


def _ranked(*sets: sp.Set) -> list[sp.Set]:
    """The sets with the place of each of their numbers, in order, instead of the number: no digit counts then."""
    numbers = {end for one in sets for part in one.atoms(sp.Interval, sp.FiniteSet) for end in _ends(part)}
    ranks: list[list[sp.Expr]] = []
    for number in sorted(numbers, key=cmp_to_key(math_exact.order)):
        if ranks and math_exact.same(ranks[-1][0], number):
            ranks[-1].append(number)
        else:
            ranks.append([number])
    place = {number: sp.Integer(rank) for rank, equal in enumerate(ranks) for number in equal}
    return [_replaced(one, place) for one in sets]


def _ends(part: sp.Set) -> list[sp.Expr]:
    ends = [part.start, part.end] if isinstance(part, sp.Interval) else list(part.args)
    return [end for end in ends if not end.is_infinite]


def _replaced(one: sp.Set, place: dict[sp.Expr, sp.Integer]) -> sp.Set:
    if isinstance(one, sp.Interval):
        return sp.Interval(place.get(one.start, one.start), place.get(one.end, one.end), one.left_open, one.right_open)
    if isinstance(one, sp.FiniteSet):
        return sp.FiniteSet(*(place.get(end, end) for end in one.args))
    if isinstance(one, sp.Union | sp.Intersection | sp.Complement):
        return one.func(*(_replaced(part, place) for part in one.args))
    return one


class _Comparison:
    """One pair. `decimals`: the decimal numbers that are written in it."""

    def __init__(self, is_complex: bool, decimals: set[Fraction]) -> None:
        self.is_complex, self.decimals = is_complex, decimals
        self.undecided: Exception | None = None

    def same(self, gold: Any, answer: Any) -> bool:
        if isinstance(gold, sp.MatrixBase) and isinstance(answer, sp.MatrixBase):
            return gold.shape == answer.shape and all(map(self.same, gold, answer))
        if isinstance(gold, sp.Expr) and isinstance(answer, sp.Expr):
            return self._same_number(gold, answer)
        if isinstance(gold, Relational) and isinstance(answer, Relational) and _is_multiple(gold, answer):
            return True
        gold, answer = _as_sets(gold, answer)
        if isinstance(gold, sp.Set) and isinstance(answer, sp.Set) and not gold.free_symbols | answer.free_symbols:
            gold, answer = _ranked(gold, answer)
            return gold == answer or gold.symmetric_difference(answer).is_empty is True
        # The two places where math-verify compares numbers; its own comparison rounds.
        math_verify.sympy_numeric_eq = lambda one, other, *_: self._same_inside(one, other)
        math_verify.sympy_symbolic_eq = lambda one, other: False
        gold, answer = math_exact.settled(gold), math_exact.settled(answer)
        found = math_verify.verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True, raise_on_error=True)
        if not found and self.undecided:
            raise self.undecided
        return bool(found)

    def _same_inside(self, one: Any, other: Any) -> bool:
        """math-verify takes any exception for a no."""
        try:
            return self.same(one, other)
        except (math_exact.NotComparable, math_exact.TooLarge, math_exact.Undefined) as error:
            self.undecided = error
            return False

    def _same_number(self, gold: sp.Expr, answer: sp.Expr) -> bool:
        for number, other in ((gold, answer), (answer, gold)):
            if isinstance(number, sp.Rational) and Fraction(int(number.p), int(number.q)) in self.decimals:
                value = None if other.free_symbols else math_exact.rational(other)
                if value is None and not other.free_symbols and not other.has(sp.oo, -sp.oo):
                    return math_exact.rounds_to(Fraction(int(number.p), int(number.q)), other)
        return math_exact.same(gold, answer, is_complex=self.is_complex)
