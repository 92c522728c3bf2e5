r"""Answers of `math`, read by this audit's own code: whether the stored grade can be true.

It reads numbers and what is built of them with `+ - * /`, powers, roots, factorials, `\binom`, `\pi`, `e`, and `\ln`, `\sin` and
`\cos` of what is in brackets, alone or in tuples, intervals and sets, and after `x =`. Rationals are fractions; the rest is
enclosed in intervals at 2,000 bits (mpmath's, rounded outward). So an equality that is wrong shows, however near the two are.
What else there is (letters, units, percent, relations, unions, matrices, complex numbers, writing that can be read in two ways)
is left out by name.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any, Literal

BITS = 2_000
LONGEST, LARGEST = 400, 200_000
"""Characters of an answer, and bits of a fraction, that are read."""
Found = Literal["same", "apart", "close"]
"""Equal as fractions; certainly different; or not told apart at `BITS`."""

_TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:\.\d+)?|\.\d+|[-+*/^!(){}\[\],=]|\\[{}]|[A-Za-z]|\S", re.ASCII)
_DROPPED = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:!]|\\?\$")
_TWO_WAYS = re.compile(r"\d(?:\s|\\[,;:! ])+\d|\{,\}|\de[-+]?\d|\d\s*\{\s*\\|\.\.|[^\x00-\x7f]")
_NAME = re.compile(r"\s*([A-Za-z])\s*=")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


class Left(Exception):
    """What this audit does not read, in words."""


class _NoValue(Exception):
    pass


def last_box(text: str) -> str | None:
    r"""What is in the last `\boxed{...}` that closes, or None."""
    found, open_at = None, []
    for token in re.finditer(r"\\boxed\s*\{|\\.|[{}]", text, re.DOTALL):
        if token[0] == "}":
            if open_at and (start := open_at.pop()) >= 0:
                found = text[start : token.start()]
        elif token[0][-1] == "{" and token[0] != "\\{":
            open_at.append(token.end() if token[0].startswith("\\boxed") else -1)
    return found


def compared(gold: str, answer: str) -> Found:
    """Raises `Left`."""
    names = {found[1] for text in (gold, answer) if (found := _NAME.match(text))}
    if len(names) > 1:
        raise Left("equations of two names")
    return _compared(_shape(_NAME.sub("", gold, count=1)), _shape(_NAME.sub("", answer, count=1)))


def _compared(one: tuple[str, list[Any]], other: tuple[str, list[Any]]) -> Found:
    if one[0] != other[0]:
        if {one[0], other[0]} <= {"number", "\\infty", "-\\infty"}:
            _ = [_Reader(tokens).value() for kind, tokens in (one, other) if kind == "number"]  # raises Left
            return "apart"
        raise Left("forms of two kinds")
    kind, parts, others = one[0], one[1], other[1]
    if kind == "number":
        return _numbers(parts, others)
    if kind != "{}":
        if len(parts) != len(others):
            return "apart"
        return _all([_compared(left, right) for left, right in zip(parts, others, strict=True)])
    sides = [[_any([_compared(left, right) for right in b]) for left in a] for a, b in ((parts, others), (others, parts))]
    return _all(sides[0] + sides[1])


def _all(found: list[Found]) -> Found:
    return "apart" if "apart" in found else "close" if "close" in found else "same"


def _any(found: list[Found]) -> Found:
    return "same" if "same" in found else "close" if "close" in found else "apart"


def _shape(text: str) -> tuple[str, list[Any]]:
    """(brackets, parts), or ("number", tokens)."""
    if len(text) > LONGEST:
        raise Left("long answers")
    if _TWO_WAYS.search(text):
        raise Left("writing that can be read in two ways")
    text = _DROPPED.sub("", text).strip().rstrip(".")
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    tokens = _TOKEN.findall(text)
    if tokens in (["\\infty"], ["+", "\\infty"], ["-", "\\infty"]):
        return "-\\infty" if tokens[0] == "-" else "\\infty", []
    ends = tokens[0].lstrip("\\") + tokens[-1].lstrip("\\") if len(tokens) > 2 else ""
    parts = _split(tokens[1:-1]) if ends in ("()", "[]", "(]", "[)", "{}") else []
    if len(parts) > 1 or (parts and tokens[0] == "\\{"):
        return ends, [_shape(" ".join(part)) for part in parts]
    if "," in tokens:
        raise Left("lists without brackets")
    return "number", tokens


def _split(tokens: list[str]) -> list[list[str]]:
    """The parts between commas; none if a bracket closes that was not opened here."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.lstrip("\\") in ("(", "[", "{")) - (token.lstrip("\\") in (")", "]", "}"))
        if depth < 0:
            return []
        if token == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _numbers(gold: list[str], answer: list[str]) -> Found:
    one, other = _Reader(gold).value(), _Reader(answer).value()
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return "same" if one == other else "apart"
    difference = _interval(one) - _interval(other)
    if any(_is_decimal(tokens) for tokens in (gold, answer)):  # the two need only round to the same six places
        if abs(difference) > _interval(Fraction(1, 10**6)):
            return "apart"
        raise Left("decimals near a value that is not rational")
    return "close" if 0 in difference else "apart"


def _is_decimal(tokens: list[str]) -> bool:
    return len(tokens) <= 2 and "." in tokens[-1]


def _interval(value: Any) -> Any:
    try:
        from mpmath import iv
    except ImportError:
        raise Left("values that are not rational: the package mpmath is missing") from None
    iv.prec = BITS
    if not isinstance(value, Fraction):
        return value
    return iv.mpf(value.numerator) / iv.mpf(value.denominator)


class _Reader:
    """Recursive descent: sums of products of signed powers."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def value(self) -> Any:
        try:
            found = self._sum()
        except (_NoValue, ZeroDivisionError, RecursionError):
            raise Left("values that are not defined or too large") from None
        if self.at < len(self.tokens):
            raise Left(_name(self.tokens[self.at]))
        return found

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, *wanted: str) -> bool:
        if self._next() in wanted:
            self.at += 1
            return True
        return False

    def _sum(self) -> Any:
        total = self._product()
        while self._next() in ("+", "-"):
            minus = self._take("-")
            self.at += not minus
            total = _plus(total, self._product(), -1 if minus else 1)
        return total

    def _product(self) -> Any:
        if self._take("-"):
            return _times(Fraction(-1), self._product())
        if self._take("+"):
            return self._product()
        found = self._power()
        divided = False
        while True:
            before = self.tokens[self.at - 1]
            if self._take("*", "\\cdot", "\\times"):
                found = _times(found, self._signed())
            elif self._take("/"):
                found, divided = _over(found, self._signed()), True
            elif self._next() in ("(", "{", "e") or self._next().startswith("\\") or (before == "!" and self._next().isdigit()):
                is_mixed = before.isdigit() and self._next() == "\\frac"
                if divided or (is_mixed and (self.at > 1 or len(self.tokens) > self.at + 7)):
                    raise Left("writing that can be read in two ways")
                found = _plus(found, self._power(), 1) if is_mixed else _times(found, self._power())
            else:
                return found

    def _signed(self) -> Any:
        return _times(Fraction(-1), self._signed()) if self._take("-") else self._power()

    def _power(self) -> Any:
        base = self._atom()
        while self._take("!"):
            base = _factorial(base)
        if self._take("^"):
            return _raised(base, self._atom())
        return base

    def _one(self) -> Any:
        """An argument of `\\frac`: of `12` the first digit."""
        token = self._next()
        if token.isdigit() and len(token) > 1:
            self.tokens = [*self.tokens[: self.at], token[0], token[1:], *self.tokens[self.at + 1 :]]
        return self._atom()

    def _atom(self) -> Any:
        token = self._next()
        self.at += 1
        if re.fullmatch(r"\d*\.?\d+", token, re.ASCII):
            return Fraction(token)
        if token in ("(", "{"):
            found = self._sum()
            if not self._take(")" if token == "(" else "}"):
                raise Left(_name(self._next()))
            return found
        if token == "\\frac":
            top = self._one()
            return _over(top, self._one())
        if token == "\\binom":
            return _binomial(self._one(), self._one())
        if token == "\\sqrt":
            index = Fraction(2)
            if self._take("["):
                index = self._sum()
                if not self._take("]"):
                    raise Left(_name(self._next()))
            return _raised(self._one(), _over(Fraction(1), index))
        if token == "\\pi":
            return _constant("pi")
        if token == "e":
            return _constant("e")
        if token in ("\\ln", "\\sin", "\\cos"):
            if self._next() not in ("(", "{"):
                raise Left("functions without brackets")
            return _function(token[1:], self._atom())
        raise Left(_name(token))


def _name(token: str) -> str:
    if not token:
        return "texts that end too early"
    if token == "%" or token.startswith(("\\text", "\\mathrm", "\\circ")):
        return "units, percent and words"
    return "letters" if token.isalpha() else "other commands and relations"


def _bounded(value: Any) -> Any:
    if isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) > LARGEST:
        raise _NoValue
    return value


def _plus(one: Any, other: Any, sign: int) -> Any:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return _bounded(one + sign * other)
    return _interval(one) + _interval(other) * sign


def _times(one: Any, other: Any) -> Any:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return _bounded(one * other)
    return _interval(one) * _interval(other)


def _over(top: Any, bottom: Any) -> Any:
    if isinstance(top, Fraction) and isinstance(bottom, Fraction):
        return _bounded(top / bottom)
    bottom = _interval(bottom)
    if 0 in bottom:
        raise _NoValue
    return _interval(top) / bottom


def _raised(base: Any, power: Any) -> Any:
    is_whole = isinstance(power, Fraction) and power.denominator == 1
    if is_whole and isinstance(base, Fraction):
        if abs(power) * max(base.numerator.bit_length(), base.denominator.bit_length()) > LARGEST:
            raise _NoValue
        return base ** int(power)
    base = _interval(base)
    if is_whole and abs(power) < LARGEST:
        return base ** int(power)
    power = _interval(power)
    if not base > 0 or not abs(power) < 10**6:
        raise _NoValue
    from mpmath import iv

    return iv.exp(power * iv.ln(base))


def _factorial(value: Any) -> Any:
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= 10_000:
        raise _NoValue
    return Fraction(math.factorial(int(value)))


def _binomial(top: Any, bottom: Any) -> Any:
    if not all(isinstance(one, Fraction) and one.denominator == 1 and 0 <= one <= 10_000 for one in (top, bottom)):
        raise _NoValue
    return Fraction(math.comb(int(top), int(bottom)))


def _constant(name: str) -> Any:
    one = _interval(Fraction(1))
    from mpmath import iv

    return one * getattr(iv, name)


def _function(name: str, value: Any) -> Any:
    value = _interval(value)
    from mpmath import iv

    if name == "ln" and not value > 0:
        raise _NoValue
    return getattr(iv, name)(value)
