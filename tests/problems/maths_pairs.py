"""500 pairs of a gold and an answer whose truth is known by construction: equal forms and near misses, built with sympy.

An equal form is the gold after an identity, written another way; a near miss is an equal form of the gold after one small change
(a number, a sign, an exponent, a bracket). `values_agree` checks each pair of expressions at points of high precision, so the truth
rests neither on the grader nor on sympy's `simplify`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp
from sympy import I, Integer, Rational, cos, exp, latex, log, sin, sqrt

X, Y, A = sp.symbols("x y a")
KINDS = 20
PER_KIND = 25  # of which every second is a near miss


@dataclass(frozen=True)
class Pair:
    """`equal` is the truth."""

    kind: str
    gold: str
    answer: str
    equal: bool


def pairs(seed: int = 20_261_129) -> list[Pair]:
    """All pairs, the same for the same seed."""
    made = []
    for kind, build in _BUILDERS.items():
        rng = random.Random(f"{seed} {kind}")
        for place in range(PER_KIND):
            equal = place % 2 == 0
            gold, answer = build(rng, equal)
            made.append(Pair(kind, gold, answer, equal))
    return made


def values_agree(one: sp.Expr, other: sp.Expr) -> bool:
    """Equal to 40 digits at three points, none of them special."""
    points = [{X: Rational(17, 13), Y: Rational(29, 11), A: Rational(31, 7)}, {X: sp.pi / 5, Y: sqrt(3), A: Rational(9, 4)}]
    points.append({X: Rational(3, 97), Y: Rational(101, 8), A: sp.E})
    return all(abs(sp.N(one.subs(at) - other.subs(at), 60)) < Rational(1, 10**40) for at in points)


def _expressions(
    rng: random.Random, equal: bool, gold: sp.Expr, changed: sp.Expr, write: Callable[[sp.Expr], sp.Expr]
) -> tuple[str, str]:
    """LaTeX of `gold`, and of `gold` or `changed` written by `write`; the truth is checked by values."""
    answer = write(gold if equal else changed)
    assert values_agree(gold, answer) == equal, (gold, answer, equal)
    return latex(gold), latex(answer)


def _other(rng: random.Random, low: int, high: int, not_this: int) -> int:
    return rng.choice([number for number in range(low, high) if number != not_this])


def _integer(rng, equal):
    number = rng.randint(1_000, 9_999_999)
    shown = number if equal else number + rng.choice([-1000, -10, -1, 1, 10, 1000])
    grouped = f"{shown:,}"
    dress = rng.choice(
        [grouped, grouped.replace(",", r"\,"), grouped.replace(",", "{,}"), grouped.replace(",", " "), rf"\${grouped}.00"]
    )
    return str(number), rng.choice([dress, f"{dress}.", rf"n = {dress}", rf"{dress}\text{{ units}}"])


def _rational(rng, equal):
    top, bottom = rng.randint(1, 40), rng.randint(2, 40)
    gold = Rational(top, bottom) * rng.choice([1, -1])
    value = gold if equal else rng.choice([gold + Rational(1, 7 * bottom), -gold, gold + 1])
    times = rng.randint(2, 9)
    sign = "-" if value < 0 else ""
    up, down = abs(value.p), value.q
    forms = [rf"{sign}\frac{{{up}}}{{{down}}}", rf"\dfrac{{{sign}{up * times}}}{{{down * times}}}", f"{sign}{up}/{down}"]
    if up > down > 1:
        forms.append(rf"{sign}{up // down}\frac{{{up % down}}}{{{down}}}")
    return latex(gold), rng.choice(forms)


def _decimal(rng, equal):
    gold = Rational(rng.randint(1, 9_999), rng.choice([8, 16, 25, 40, 125]))
    value = gold if equal else gold + rng.choice([Rational(1, 1000), Rational(-1, 1000), 1, gold * 9])
    digits = _plain(value)
    ten = rf"{_plain(value / 100)} \times 10^{{2}}"
    return latex(gold), rng.choice([digits, ten, rf"{_plain(100 * value)}\%", digits.rstrip(".") + r"\text{ m}"])


def _plain(value: Rational) -> str:
    """A finite decimal of at most ten places."""
    scaled = value * 10**10
    assert scaled.q == 1
    digits = f"{int(scaled):011d}"
    return f"{digits[:-10]}.{digits[-10:]}".rstrip("0").rstrip(".")


def _surd(rng, equal):
    under, out = rng.choice([2, 3, 5, 6, 7, 10]), rng.randint(2, 9)
    add = rng.randint(-5, 5)
    gold = out * sqrt(under) + add
    value = rng.choice([out * sqrt(under) - add - 1, (out + 1) * sqrt(under) + add, out * sqrt(under + 5) + add])
    chosen = out if equal else None
    if equal:
        written = rf"\sqrt{{{chosen * chosen * under}}}" + (f"{add:+d}" if add else "")
        return latex(gold), rng.choice(
            [written, rf"{add}+{out}\cdot {under}^{{1/2}}", rf"\frac{{{2 * out}\sqrt{{{under}}}+{2 * add}}}{{2}}"]
        )
    assert not values_agree(gold, value)
    return latex(gold), latex(value)


def _rationalised(rng, equal):
    under, top = rng.choice([2, 3, 5, 7]), rng.randint(1, 9)
    other = rng.randint(1, 6)
    gold = sp.radsimp(top / (sqrt(under) + other + 3))
    change = rng.choice([(top + 1, under, other), (top, under + 4, other), (top, under, other + 1)])
    up, root, add = (top, under, other) if equal else change
    answer = rf"\frac{{{up}}}{{\sqrt{{{root}}}+{add + 3}}}"
    assert values_agree(gold, up / (sqrt(root) + add + 3)) == equal
    return latex(gold), answer


def _polynomial(rng, equal):
    roots = [rng.randint(-6, 6) for _ in range(rng.randint(2, 3))]
    lead = rng.randint(1, 4)
    factored = lead * sp.prod([X - root for root in roots])
    gold = sp.expand(factored)
    changed = gold + rng.choice([X, -X, 1, -1, 2 * X**2])
    return _expressions(
        rng,
        equal,
        gold,
        changed,
        rng.choice([sp.factor, sp.horner, lambda e: sp.Add(*e.as_ordered_terms()[::-1], evaluate=False)]),
    )


def _two_variables(rng, equal):
    a, b, c = (rng.randint(1, 7) for _ in range(3))
    gold = sp.expand((a * X + b * Y) ** 2 - c * X * Y)
    changed = sp.expand((a * X - b * Y) ** 2 - c * X * Y)
    return _expressions(
        rng, equal, gold, changed, rng.choice([lambda e: sp.collect(e, X), lambda e: sp.collect(e, Y), sp.expand])
    )


def _rational_function(rng, equal):
    p, q = rng.randint(1, 5), rng.randint(6, 9)
    gold = rng.randint(1, 5) / (X + p) + rng.randint(1, 5) / (X - q)
    changed = gold + 1 / (X + p)
    return _expressions(rng, equal, gold, changed, rng.choice([sp.together, lambda e: sp.expand(sp.together(e)), sp.factor]))


def _trigonometric(rng, equal):
    k = rng.randint(2, 5)
    gold = rng.choice([sin(2 * X) * k, cos(2 * X) + k, sin(X) ** 2 * k, k * cos(X) ** 2])
    changed = gold + rng.choice([1, sin(X), cos(X)])
    return _expressions(
        rng, equal, gold, changed, rng.choice([sp.expand_trig, lambda e: sp.expand(e.rewrite(exp)), lambda e: e.rewrite(sp.tan)])
    )


def _logarithm(rng, equal):
    p, q = rng.choice([2, 3, 5, 7]), rng.choice([11, 13, 17])
    n = rng.randint(2, 5)
    gold = n * log(p) + log(q)
    if equal:
        return latex(gold, ln_notation=True), rng.choice(
            [rf"\ln {p**n * q}", rf"\ln({p**n}) + \ln({q})", rf"\ln {q} + {n}\ln {p}"]
        )
    wrong = rng.choice([number for number in (p**n * q + 1, p * q * n, p**n + q) if number != p**n * q])
    assert not values_agree(gold, log(wrong))
    return latex(gold, ln_notation=True), rf"\ln {wrong}"


def _exponential(rng, equal):
    a, b = rng.randint(1, 5), rng.randint(2, 5)
    gold = a * exp(b * X)
    if equal:
        return latex(gold), rng.choice(
            [rf"{a}(e^{{x}})^{{{b}}}", rf"{a} e^{{x}} e^{{{b - 1}x}}", rf"\frac{{{a}}}{{e^{{-{b}x}}}}"]
        )
    return latex(gold), rng.choice([rf"{a}e^{{{b + 1}x}}", rf"{a + 1}e^{{{b}x}}", rf"{a}e^{{-{b}x}}", rf"{a}+e^{{{b}x}}"])


def _power(rng, equal):
    base, top = rng.choice([2, 3, 5]), rng.randint(3, 9)
    gold = Integer(base) ** top
    change = rng.choice([(base, top + 1), (base + 1, top)])
    b, t = (base, top) if equal else change
    return str(gold), rng.choice([f"{b}^{{{t}}}", rf"{b} \cdot {b}^{{{t - 1}}}", rf"\frac{{{b}^{{{t + 1}}}}}{{{b}}}"])


def _combinatorial(rng, equal):
    n, k = rng.randint(6, 12), rng.randint(2, 4)
    gold = sp.binomial(n, k)
    m = n if equal else n + 1
    return str(gold), rng.choice([rf"\binom{{{m}}}{{{k}}}", rf"\frac{{{m}!}}{{{k}!\,({m}-{k})!}}"])


def _set(rng, equal):
    members = rng.sample(range(-9, 10), rng.randint(2, 4))
    root = rng.choice([None, 2, 3])
    gold = [str(number) for number in members] + ([rf"\sqrt{{{root * 4}}}"] if root else [])
    answer = [str(number) for number in members] + ([rf"2\sqrt{{{root}}}"] if root else [])
    if not equal:
        answer = rng.choice([[*answer[1:], str(_other(rng, -9, 10, members[0]) + 20)], answer[:-1], [*answer, "31"]])
    rng.shuffle(answer)
    inside = ", ".join(answer)
    forms = [rf"\{{{inside}\}}", rf"\left\{{ {inside} \right\}}", inside, r" \text{ or } ".join(f"x={one}" for one in answer)]
    return rf"\{{{', '.join(gold)}\}}", rng.choice(forms if len(answer) > 1 else forms[:2])


def _interval(rng, equal):
    low = rng.randint(-9, 0)
    high = rng.randint(1, 9)
    left, right = rng.choice(["(]", "[)", "()", "[]"])
    gold = f"{left}{low}, {high}{right}"
    wrong = rng.choice(
        [
            ({"(": "[", "[": "("}[left], right, low, high),
            (left, {")": "]", "]": ")"}[right], low, high),
            (left, right, low + 1, high),
            (left, right, low, high + 2),
        ]
    )
    one, two, start, stop = (left, right, low, high) if equal else wrong
    return gold, rng.choice([f"{one}{start},{stop}{two}", rf"x \in \left{one}{start}, \frac{{{2 * stop}}}{{2}}\right{two}"])


def _union(rng, equal):
    cut, far = rng.randint(-5, 5), rng.randint(6, 9)
    gold = rf"(-\infty, {cut}) \cup ({far}, \infty)"
    if equal:
        return gold, rng.choice(
            [rf"({far},\infty)\cup(-\infty,{cut})", rf"x \in (-\infty,{cut}) \cup \left({far}, +\infty\right)"]
        )
    return gold, rng.choice(
        [rf"(-\infty,{cut}]\cup({far},\infty)", rf"({cut}, {far})", rf"(-\infty,{cut + 1})\cup({far},\infty)"]
    )


def _point(rng, equal):
    numbers = [rng.randint(-9, 9), rng.randint(10, 20), Rational(rng.randint(1, 9), 10)]
    gold = "(" + ", ".join(latex(number) for number in numbers) + ")"
    answer = list(numbers)
    if not equal:
        place = rng.randrange(3)
        answer = rng.choice([[answer[1], answer[0], answer[2]], [*answer[:place], answer[place] + 1, *answer[place + 1 :]]])
    written = ", ".join(str(number) if number.is_Integer else _plain(number) for number in map(sp.sympify, answer))
    return gold, rng.choice([f"({written})", f"(x,y,z) = ({written})", rf"\left({written}\right)"])


def _matrix(rng, equal):
    numbers = [rng.randint(-9, 9) for _ in range(4)]
    gold = _rows("pmatrix", numbers)
    answer = list(numbers)
    if not equal:
        answer[rng.randrange(4)] += rng.choice([-1, 1])
    return gold, _rows("bmatrix", answer)


def _rows(name: str, numbers: list[int]) -> str:
    a, b, c, d = numbers
    return rf"\begin{{{name}}} {a} & {b} \\ {c} & {d} \end{{{name}}}"


def _complex(rng, equal):
    a, b, c, d = (rng.randint(1, 6) for _ in range(4))
    gold = sp.expand((a + b * I) * (c + d * I))
    real, imaginary = int(sp.re(gold)), int(sp.im(gold))
    if not equal:
        real, imaginary = rng.choice([(real, -imaginary), (real + 1, imaginary), (imaginary + 20, real)])
    return rng.choice([latex(gold), f"({a}+{b}i)({c}+{d}i)"]), rng.choice(
        [f"{real}{imaginary:+}i", f"{imaginary}i{real:+}" if real else f"{imaginary}i"]
    )


def _line(rng, equal):
    slope, add = rng.randint(2, 9), rng.randint(1, 9)
    wrong = rng.choice([(slope + 1, add), (slope, -add), (-slope, add)])
    m, c = (slope, add) if equal else wrong
    return f"y = {slope}x + {add}", rng.choice(
        [f"y={c}{m:+d}x", f"y - {m}x = {c}", f"{m}x{c:+d} = y", f"2y = {2 * m}x{2 * c:+d}"]
    )


_BUILDERS: dict[str, Callable[[random.Random, bool], tuple[str, str]]] = {
    "integer": _integer,
    "rational": _rational,
    "decimal": _decimal,
    "surd": _surd,
    "rationalised": _rationalised,
    "polynomial": _polynomial,
    "two variables": _two_variables,
    "rational function": _rational_function,
    "trigonometric": _trigonometric,
    "logarithm": _logarithm,
    "exponential": _exponential,
    "power": _power,
    "combinatorial": _combinatorial,
    "set": _set,
    "interval": _interval,
    "union": _union,
    "point": _point,
    "matrix": _matrix,
    "complex": _complex,
    "line": _line,
}
assert len(_BUILDERS) == KINDS
