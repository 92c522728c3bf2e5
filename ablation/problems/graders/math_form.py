r"""How `math` reads the text of an answer or a gold, before any algebra: plain text work, no package.

Applied in this order.

1. and 2. Writing and currency: the rules of `math_text`.
3. Thousands: `12,500`, `12{,}500`, `12 500` (any space, `\,` too) are 12500: one to three digits, then groups of exactly three,
   always with the same mark. Inside (), [] and sets a plain comma separates instead. `1{,}5` is 1.5.
4. Shape, by the outermost brackets: `\{a, b\}` and `a, b` (also `;`, "and", "or") are sets, without order or repeats; `\pm a` is
   the set of both signs; `(a, b)` is a tuple or an open interval, in order; `[a, b]`, `[a, b)`, `(a, b]`, `]a, b[` are in order
   and have these ends. A set of one equals its element, and a bare list equals a tuple in the same order.
5. In each part: `name = value` and `name \in value` stand for the value if the other side has no name; of an answer's chain of
   equations the last part counts if the gold has none. With `%` (or "percent") on one side only, p stands for
   p/100 and, if it is more than 1, for p, too. A unit at the end goes: `\text{...}` or `\mathrm{...}`, degrees, a word of the
   table (two letters or more), one word after a number and a blank, the base of a number (`101_2`), `\pmod{7}` or a currency. Two
   units of the table, two bases or two moduli that differ make the values differ. `a:b` is a fraction, `a:b:c` a tuple of
   fractions of a; two like `3:45` are times.
6. Numbers: integers, decimals, `a/b`, `\frac{a}{b}`, mixed numbers `2\frac{1}{2}`, `a \times 10^{n}` and repeating decimals
   `0.\overline{3}` are exact rationals, and two of them are compared as such: 0.333 is not 1/3.

Relations joined by "or" or "and" (`x < 1 or x > 2`) are one value, and `\{x \mid x > 2\}` is what stands behind the bar.

What holds words (`\text{see figure}`, also behind a number if they say more than a unit: `5 or more`), dots that leave something
out, or, after step 1, a character that is not ASCII (`½`) is no mathematics and cannot be read,
and so are two numbers with a blank between them that are neither thousands nor a mixed number (`2 3` is not 6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from ablation.problems.extract import strip_groups
from ablation.problems.graders.math_text import clean
from ablation.problems.graders.math_units import unit_name

LONGEST = 4_000
"""Characters; what is longer is not compared."""
_DEEPEST, _LARGEST_POWER = 6, 4_000

_THOUSANDS = re.compile(r"(?<![\d._^])(\d{1,3})(?=(\{,\}|,| |')\d{3})((?:\2\d{3})+)(?!\d|\2\d)")
_AND = re.compile(r",?\s*\\(?:text|mathrm|textrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*\}\s*|,?\s+(?:and|or)\s+|;\s*")
_BRACKET = re.compile(r"\\[{}]|\\(?:begin|end)(?![A-Za-z])|\\.|[(\[{}\])]|,|=|\\", re.DOTALL)
_LETTER = r"(?:[A-Za-z]|\\[A-Za-z]+|\\(?:vec|hat|bar|tilde|overline|overrightarrow|mathcal)\s*\{\w+\})(?:_\{?\w+\}?)?"
_DERIVATIVE = r"\\frac\s*\{\s*(?:d|\\partial)\s*\w*\s*\}\{\s*(?:d|\\partial)\s*\w\s*\}"
_NAME = re.compile(rf"{_LETTER}(?:\([A-Za-z\d, ]+\))?|\([A-Za-z](?:, *[A-Za-z])*\)|{_DERIVATIVE}")
_MEMBER = re.compile(r"(?:[A-Za-z](?:_\{?\w+\}?)?|\\[A-Za-z]+)\s*\\in(?![A-Za-z])\s*")
_PERCENT = re.compile(r"\s*(?:\\?%|\\(?:text|mathrm)\s*\{\s*(?:percent|per cent|\\?%)\s*\}|percent)$")
_TEXT_UNIT = re.compile(r"(?:[\s/]*\\(?:text|mathrm|textrm|mbox|operatorname)\s*\{[^{}]*\}(?:\s*\^\s*(?:\{-?\d\}|\d))?)+$")
_MORE_THAN_UNIT = re.compile(
    r"\b(?:or|and|not?|never|more|less|fewer|(?:at )?(?:most|least)|than|out|over|under|between|to|if|when|where|unless|otherwise"
    r"|wrong|maybe|perhaps|plus|minus|halves|thirds|(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand|million)ths|dozen|score"
    r"|hundred|thousand|[mbtr]+illion|per ?mille|per thousand)\b|^\s*(?:squared|cubed)|\?|(?:^|\s)\d|\\",
    re.IGNORECASE,
)
_OF_NUMBER = re.compile(r"(?:base|mod) ")
_CURRENCY = re.compile(r"[$€£¥]\s*")
_MODULUS = re.compile(
    r"\s*(?:\\pmod\s*(\{\s*\w+\s*\}|\w)|\(\s*\\(?:[bp]?mod|(?:mathrm|text|operatorname)\s*\{\s*mod\s*\})\s*(\w+)\s*\))$"
)
_DOTS = re.compile(r"\\[lcdv]?dots(?![A-Za-z])|\.\.\.")
_RATIO = re.compile(r"[^:=<>|]+(?::[^:=<>|]+)+")
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)")
_RELATION = re.compile(r"[<>]|\\(?:[lg]eq?(?:slant)?|[lg]t|ne|neq)(?![A-Za-z])")
_JOINED = re.compile(
    r"[;,]?\s*(?:\\(lor|land)(?![A-Za-z])|\\(?:text|mathrm|textrm|mbox)\s*\{\s*,?\s*(and|or)\s*,?\s*\}|(?<![A-Za-z\\])(and|or)(?![A-Za-z]))\s*"
)
_SUCH_THAT = re.compile(r"\s*([A-Za-z])\s*(?:\\in\s*\\mathbb\s*\{R\})?\s*(?:\\mid(?![A-Za-z])|\||:|\\colon(?![A-Za-z]))")
_DEGREES = re.compile(r"\s*(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|\\degree(?![A-Za-z]))\s*([CF]?)$")
_WORD_UNIT = re.compile(r"(?<=[\d}])\s*([A-Za-z]{2}[A-Za-z/ ]*(?:\^\s*(?:\{\d\}|\d))?)$")
_BASE = re.compile(r"(?<=[\d)])_(?:\{\s*)?\(?(?:(\d+)|\\(?:text|mathrm)\s*\{\s*(?:base )?(\w+)\s*\})\)?\s*\}?$")
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10"}
_WITHOUT_BLANK = ("mm", "cm", "km", "in", "ft", "yd", "mi", "kg", "lb", "oz", "ml", "mL", "hr", "AM", "PM")
_COMMAND_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox|textbf)\s*\{\s*([^{}]*?)\s*\}")
_WORDS = re.compile(r"(?<![A-Za-z\\])(?:[A-Za-z]{5,}|[A-Za-z]{2,} +[A-Za-z]{2,})")
_IS_WORDLESS = re.compile(r"\\(?:operatorname|begin|end|mathbb|mathcal)\s*\{[^{}]*\}|\\[A-Za-z]+")

_D = r"(?:\d+(?:\.\d*)?|\.\d+)"
# Not after a command, an index or an exponent (`\frac 1 2`, `\log_2 8`), and not a mixed number.
_SIDE_BY_SIDE = re.compile(rf"(?:^|[(\[{{,=+\-*/<>])\s*{_D} +{_D}(?![\d.]|\s*/)")
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s*(?:
        (?P<whole>\d+)\s*\\frac\s*\{{\s*(?P<m1>\d+)\s*\}}\s*\{{\s*(?P<m2>\d+)\s*\}}
      | (?P<plain>\d+)[ ](?P<p1>\d+)\s*/\s*(?P<p2>\d+)
      | \\frac\s*(?:\{{\s*(?P<f1>-?\s*{_D})\s*\}}|(?P<g1>\d))\s*(?:\{{\s*(?P<f2>-?\s*{_D})\s*\}}|(?P<g2>\d))
      | (?P<o1>{_D})\s*/\s*(?P<o2>{_D})
      | (?P<start>\d*)\.(?P<middle>\d*)\s*\\(?:overline|bar|dot)\s*\{{\s*(?P<period>\d+)\s*\}}
      | (?:(?P<digits>{_D})\s*(?:(?:\\times|\\cdot|\*)\s*(?=10))?)??
        (?:(?<![\d.])10\s*\^\s*(?:\{{\s*(?P<power>[+-]?\s*\d+)\s*\}}|(?P<power1>\d)))?
    )""",
    re.VERBOSE,
)


class Unreadable(ValueError):
    """The text is no mathematics by the rules above."""


@dataclass(frozen=True)
class Value:
    """One number or expression. `whole` is its text with the name before it."""

    text: str
    whole: str
    name: str | None = None
    percent: bool = False
    unit: str | None = None
    exact: Fraction | None = None
    clock: tuple[int, int] | None = None
    """Hours and minutes, of what may be a time as well as a ratio."""

    @property
    def has_plain_name(self) -> bool:
        """What stands before the equals sign only names the value."""
        return self.name is not None and _NAME.fullmatch(self.name) is not None


@dataclass(frozen=True)
class Parts:
    """Several values. `kind` is set, list, or the two brackets of a tuple or an interval, for instance `[)`."""

    kind: str
    parts: tuple[Value | Parts, ...]
    whole: str


Form = Value | Parts


def values(form: Form) -> Iterator[Value]:
    """Every value in `form`, in order."""
    if isinstance(form, Value):
        yield form
    else:
        for part in form.parts:
            yield from values(part)


def read_form(text: str) -> Form:
    """The shape and the values of `text`. Raises `Unreadable`."""
    if len(text) > LONGEST:
        raise Unreadable(f"longer than {LONGEST} characters")
    return _shape(_join_thousands(clean(text)), 0)


def _join_thousands(text: str) -> str:
    """Step 3."""
    brackets = [(token.start(), token[0]) for token in _BRACKET.finditer(text)]

    def joined(found: re.Match[str]) -> str:
        if found[2] == ",":
            depth = 0
            for place, token in brackets:
                if place >= found.start():
                    break
                depth += (token in ("(", "[", r"\{")) - (token in (")", "]", r"\}"))
            if depth > 0:
                return found[0]
        return found[1] + re.sub(r"\D", "", found[3])

    return re.sub(r"(?<=\d)\{,\}(?=\d)", ".", _THOUSANDS.sub(joined, text))


def _shape(text: str, depth: int) -> Form:
    """Step 4."""
    text = strip_groups(text)
    if depth > _DEEPEST:
        raise Unreadable("nested too deeply")
    if not text:
        raise Unreadable("empty")
    if (joined := _relations(text)) is not None:
        return joined
    separated = _split(_AND.sub(", ", text), ",")
    if len(separated) > 1:
        return Parts("list", tuple(_shape(part, depth + 1) for part in separated), text)
    if container := _container(text):
        kind, inside = container
        parts = _split(_AND.sub(", ", inside), ",")
        if kind == "()" and len(parts) == 1:
            return _shape(inside, depth + 1)
        if kind == "set" and (found := _SUCH_THAT.match(inside)) and _RELATION.search(inside):
            return _shape(inside[found.end() :], depth + 1)
        if kind != "set" or not re.search(r"\\(?:mid|colon)(?![A-Za-z])|[|:]", inside):
            return Parts(kind, tuple(_shape(part, depth + 1) for part in parts) if inside.strip() else (), text)
    if re.fullmatch(r"\\(?:emptyset|varnothing)", text):
        return Parts("set", (), text)
    rest = text[found.end() :] if (found := _MEMBER.match(text)) else text
    sides = _split(rest, "=")
    if len(sides) > 1 or rest != text:
        value = strip_groups(sides[-1])
        if _container(value) and (rest != text or _NAME.fullmatch(sides[0].strip())):
            return _named(sides[0], _shape(value, depth + 1))
    if len(re.findall(r"\\[pm][pm](?![A-Za-z])", text)) == 1:
        signs = [re.sub(r"\\[pm][pm](?![A-Za-z])\s*", sign, text) for sign in ("+", "-")]
        return Parts("set", tuple(_value(one.lstrip("+")) for one in signs), text)
    if _RATIO.fullmatch(text) and len(parts := text.split(":")) > 2:
        return Parts("()", tuple(_value(rf"\frac{{{part}}}{{{parts[0]}}}") for part in parts[1:]), text)
    return _value(rest)


def _relations(text: str) -> Form | None:
    """Relations that "or" or "and" joins, as one value; None if `text` is something else."""
    words = {"or" if word in ("lor", "or") else "and" for found in _JOINED.findall(text) for word in found if word}
    if len(words) != 1:
        return None
    sides = [piece.strip(" ;,") for part in _JOINED.sub("\0", text).split("\0") for piece in _split(part, ",")]
    sides = [side for side in sides if side]
    if not all(_RELATION.search(side) for side in sides):
        return None
    written = rf" \l{words.pop()} ".join(sides)
    return Value(written, written)


def _named(names: str, form: Form) -> Form:
    """`form`, each part of which has its own name: (y, x) = (1, 2)."""
    letters = [one.strip() for one in names.strip().strip("()").split(",")]
    if not isinstance(form, Parts) or len(letters) < 2 or len(letters) != len(form.parts):
        return form
    parts = (
        replace(part, name=name) if isinstance(part, Value) else part for name, part in zip(letters, form.parts, strict=True)
    )
    return replace(form, parts=tuple(parts))


def _container(text: str) -> tuple[str, str] | None:
    """(kind, inside) if one pair of brackets holds the whole text."""
    if len(text) > 2 and (text[0] == "]" or text[-1] == "["):  # ]a, b[ is how some write (a, b)
        left, inside, right = {"]": "("}.get(text[0], text[0]), text[1:-1], {"[": ")"}.get(text[-1], text[-1])
        if left in "([" and right in ")]" and not re.search(r"[()\[\]]", inside) and "," in inside:
            return left + right, inside
    depth = 0
    for token in _BRACKET.finditer(text):
        if token[0] in ("(", "[", r"\{", "{", r"\begin"):
            depth += 1
        elif token[0] in (")", "]", r"\}", "}", r"\end"):
            depth -= 1
        if depth == 0:
            if token.end() != len(text) or token.start() == 0:
                return None
            if text.startswith(r"\{") and token[0] == r"\}":
                return "set", text[2:-2]
            if text[0] in "([" and token[0] in (")", "]"):
                return text[0] + token[0], text[1:-1]
            return None
    return None


def _split(text: str, mark: str) -> list[str]:
    """`text` at every `mark` outside brackets; of `<=`, `>=`, `!=` and `\\ne` none is an equals sign."""
    pieces, start, depth = [], 0, 0
    for token in _BRACKET.finditer(text):
        if token[0] in ("(", "[", r"\{", "{", r"\begin"):
            depth += 1
        elif token[0] in (")", "]", r"\}", "}", r"\end"):
            depth -= 1
        elif (
            depth == 0
            and token[0] == mark
            and not (mark == "=" and text[token.start() - 1 : token.start()] in ("<", ">", "!", ":"))
        ):
            pieces.append(text[start : token.start()])
            start = token.end()
    return [*pieces, text[start:]]


def _value(text: str) -> Value:
    """Step 5, without the comparison."""
    text = re.sub(r"\\(?:approx|equiv)(?![A-Za-z])", "=", text).strip()
    currency = {"$": "dollar", "€": "euro", "£": "poundsterling", "¥": "yen"}.get((_CURRENCY.findall(text) or [" "])[0][0], "")
    whole = text = _CURRENCY.sub("", text[1:].strip() if text.startswith("=") else text)
    name = None
    sides = _split(text, "=")
    if len(sides) > 1:
        name, text = "=".join(sides[:-1]).strip(), sides[-1].strip()
    without_percent = _PERCENT.sub("", text)
    percent, text = without_percent != text, without_percent
    unit = None
    if (found := _TEXT_UNIT.search(text)) and found.start() > 0 and found[0].strip() not in (r"\mathrm{e}", r"\mathrm{i}"):
        unit, text = re.sub(r"\\[a-z]+\s*\{([^{}]*)\}", r"\1", found[0]), text[: found.start()]
    elif found := _MODULUS.search(text):
        unit, text = f"mod {(found[1] or found[2]).strip('{ }')}", text[: found.start()]
    if (found := _DEGREES.search(text)) and found.start() > 0:
        unit, text = "°" + (found[1] or (unit or "").strip()), text[: found.start()]
    elif unit is None and (found := _WORD_UNIT.search(text)):
        before = text[: found.start()].strip()
        if _is_bare_unit(found[0], before) or (re.fullmatch(r" +[A-Za-z]{3,}", found[0]) and read_number(before) is not None):
            unit, text = found[1], before
    elif unit is None and (found := _BASE.search(text)):
        unit, text = f"base {found[1] or _BASES.get(found[2], found[2])}", text[: found.start()]
    text = strip_groups(
        _COMMAND_TEXT.sub(lambda found: found[1].strip("()") if len(found[1].strip("()")) == 1 else found[0], text)
    )
    if not text:
        raise Unreadable("empty")
    if unit and not _OF_NUMBER.match(unit) and _MORE_THAN_UNIT.search(unit):
        raise Unreadable("has words behind it that say more than a unit")
    if _DOTS.search(text) or "'" in whole or re.search(r"\\(?:[a-z]*angle|triangle)(?![A-Za-z])", text):
        raise Unreadable("has dots, a prime or a figure, which are no number")
    if not whole.isascii():
        raise Unreadable("holds a character that is not mathematics")
    if _COMMAND_TEXT.search(text) or _WORDS.search(_IS_WORDLESS.sub("", text)):
        raise Unreadable("holds words")
    clock = None
    if _RATIO.fullmatch(text):
        if text.count(":") > 1:
            raise Unreadable("is a ratio of more than two in an expression")
        clock = (int(found[1]), int(found[2])) if (found := _CLOCK.fullmatch(text)) else None
        text = text if clock and not clock[1] else rf"\frac{{{text.replace(':', '}{')}}}"
    exact = read_number(text)
    if exact is None and _SIDE_BY_SIDE.search(text):
        raise Unreadable("has two numbers side by side")
    if unit is None or not _OF_NUMBER.match(unit):
        unit = unit_name(f"{currency} {unit}" if currency and re.match(r"\s*(?:/|per\b)", unit or "") else unit or currency)
    return Value(text, whole, name, percent, unit, exact, clock)


def _letter(found: re.Match[str]) -> str:
    """The letter of a text that is one, also in brackets."""
    return letter if len(letter := found[1].strip("()")) == 1 else found[0]


def _is_bare_unit(found: str, before: str) -> bool:
    """Whether a word behind `before` is a unit and no product of letters, as `mg` in `2mg` and in `x + 2 cm`."""
    word = found.strip()
    apart = found != word or len(word) > 2 or word in _WITHOUT_BLANK
    return apart and unit_name(word) is not None and not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", before))


def read_number(text: str) -> Fraction | None:
    """Step 6: the exact rational that `text` writes, None if it writes something else."""
    found = _NUMBER.fullmatch(text)
    if not found or not re.search(r"\d", text):
        return None
    part = {name: value.replace(" ", "") for name, value in found.groupdict().items() if value is not None}
    minus = -1 if part["sign"] == "-" else 1
    try:
        if "whole" in part:
            return minus * (Fraction(part["whole"]) + Fraction(int(part["m1"]), int(part["m2"])))
        if "plain" in part:
            return minus * (Fraction(part["plain"]) + Fraction(int(part["p1"]), int(part["p2"])))
        if "f1" in part or "g1" in part:
            return minus * _ratio(part.get("f1") or part["g1"], part.get("f2") or part["g2"])
        if "o1" in part:
            return minus * _ratio(part["o1"], part["o2"])
        if "period" in part:
            middle, period = part["middle"], part["period"]
            repeated = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(middle))
            return minus * (Fraction(int(part["start"] or "0")) + Fraction(int(middle or "0"), 10 ** len(middle)) + repeated)
    except ZeroDivisionError:
        return None
    power = int(part.get("power") or part.get("power1") or 0)
    if abs(power) > _LARGEST_POWER:
        return None
    return minus * Fraction(part.get("digits", "1")) * Fraction(10) ** power


def _ratio(top: str, bottom: str) -> Fraction:
    return Fraction(top) / Fraction(bottom)
