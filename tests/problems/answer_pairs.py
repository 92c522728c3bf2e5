"""Some thousands of pairs of a gold and an answer whose truth is known by construction, for the exact comparison of `math`.

A number of some kind, size and sign is written twice. The second text is the same number by an identity (Pascal's rule, a nested
root, a logarithm of a product, ...) or after a change that is never zero: another factorial, a tiny part added, a sign turned. Both
stand alone, or in a tuple, a set, an interval, a union, an equation, an inequality or a matrix. Nothing is computed by a computer
algebra system; only whole numbers are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import comb, factorial

from .maths_pairs import Pair

SIZES = 4
Built = tuple[str, str, str]
"""A number, the same number, and another one, each positive."""


def answer_pairs(seed: int = 20_261_201) -> list[Pair]:
    """All pairs, the same for the same seed."""
    made = []
    for place, (kind, build) in enumerate(_KINDS.items()):
        for size in range(SIZES):
            rng = random.Random(f"{seed} {kind} {size}")
            for turn, (nest, inside) in enumerate(_NESTS.items()):
                if kind == "polynomial" and nest not in _FOR_LETTERS:
                    continue
                minus = (place + size + turn) % 2 == 1
                gold, equal, other = build(rng, size)
                answers = [(equal, True), (_dressed(rng, gold), True), (other, False)]
                answers += [(_nudged(rng, size, equal), False), (_nudged(rng, size, gold), False)]
                signed = [(f"-({answer})" if minus else answer, same) for answer, same in answers]
                signed.append((equal if minus else f"-({equal})", False))
                gold = f"-({gold})" if minus else gold
                made += [Pair(f"{kind} {nest}", inside(gold), inside(answer), same) for answer, same in signed]
    return made


def _dressed(rng: random.Random, text: str) -> str:
    number = rng.randint(2, 99)
    return rng.choice([rf"\frac{{{number}({text})}}{{{number}}}", f"({text})+{number}-{number}", rf"\left({text}\right)\cdot 1"])


def _nudged(rng: random.Random, size: int, text: str) -> str:
    """`text`, not zero, changed by very little."""
    tiny = rf"\frac{{1}}{{{rng.choice([2, 3, 10])}^{{{rng.randint(12, 25) * (size + 1)}}}}}"
    return rng.choice([f"({text})+{tiny}", f"({text})-{tiny}", rf"({text})\left(1+{tiny}\right)"])


def _binomial(rng: random.Random, size: int) -> Built:
    n, k = rng.randint(6, 20) * (size + 1), rng.randint(2, 5)
    gold = rf"\frac{{{n}!}}{{{n - k}!\,{k}!}}"
    same = rng.choice([rf"\binom{{{n}}}{{{k}}}", str(comb(n, k)), rf"\binom{{{n - 1}}}{{{k - 1}}}+\binom{{{n - 1}}}{{{k}}}"])
    return gold, same, rf"\frac{{{n - 1}!}}{{{n - 1 - k}!\,{k}!}}"


def _factorial(rng: random.Random, size: int) -> Built:
    n = (5, 20, 120, 1_000)[size] + rng.randint(1, 9)
    return rf"\frac{{{n}!}}{{{n - 2}!}}", rng.choice([str(n * (n - 1)), rf"{n}\cdot{n - 1}"]), rf"\frac{{{n + 1}!}}{{{n - 1}!}}"


def _power(rng: random.Random, size: int) -> Built:
    base, n = rng.choice([2, 3, 5, 7, 10]), rng.randint(8, 30) * (size + 1)
    gold = rf"\frac{{1}}{{{base}^{{{n}}}}}"
    same = rng.choice(
        [f"{base}^{{-{n}}}", rf"\left(\frac{{1}}{{{base}}}\right)^{{{n}}}", rf"\frac{{{base}}}{{{base}^{{{n + 1}}}}}"]
    )
    return gold, same, rf"\frac{{1}}{{{base}^{{{n - 1}}}}}"


def _chance(rng: random.Random, size: int) -> Built:
    days, people = rng.choice([6, 30, 365]), rng.randint(3, 5) + 5 * size
    days = max(days, people + 1)
    fewer = rf"\frac{{{days - 1}!}}{{{days - people}!\cdot {days}^{{{people - 1}}}}}"
    gold = rf"1-\frac{{{days}!}}{{{days - people}!\cdot {days}^{{{people}}}}}"
    return gold, f"1-{fewer}", rf"1-\frac{{{days - 1}!}}{{{days - people}!\cdot {days}^{{{people}}}}}"


def _half(rng: random.Random, size: int) -> Built:
    base, n = rng.choice([2, 3, 5]), rng.randint(9, 20) * (size + 1)
    top = base**n
    same = rng.choice([rf"\frac12+\frac{{1}}{{2\cdot{base}^{{{n}}}}}", rf"\frac{{{top + 1}}}{{{2 * top}}}"])
    return rf"\frac{{{base}^{{{n}}}+1}}{{2\cdot{base}^{{{n}}}}}", same, rf"\frac{{{top + 2}}}{{{2 * top}}}"


def _fraction(rng: random.Random, size: int) -> Built:
    bottom = rng.randint(3, 9) * 10 ** (5 * size) + 1
    top = rng.randint(1, 10 ** (5 * size + 1))
    times = rng.randint(2, 9)
    same = rng.choice([rf"\frac{{{top * times}}}{{{bottom * times}}}", f"{top * times}/{bottom * times}"])
    return rf"\frac{{{top}}}{{{bottom}}}", same, rf"\frac{{{top * bottom + 1}}}{{{bottom * bottom}}}"


def _decimal(rng: random.Random, size: int) -> Built:
    places = 2 + 6 * size
    number = rng.randrange(1, 10**places) * 10 + rng.randint(1, 9)
    digits = f"{number:0{places + 2}d}"
    gold = f"{digits[: -places - 1]}.{digits[-places - 1 :]}"
    same = rng.choice(
        [rf"\frac{{{number}}}{{10^{{{places + 1}}}}}", rf"{number}\times 10^{{-{places + 1}}}", f"{number}e-{places + 1:02d}"]
    )
    return gold, same, rf"\frac{{{number + 1}}}{{10^{{{places + 1}}}}}"


def _root(rng: random.Random, size: int) -> Built:
    under, out = rng.choice([2, 3, 5, 6, 7, 10, 11]), rng.randint(2, 9) * 10 ** (3 * size)
    same = rng.choice(
        [rf"\sqrt{{{out * out * under}}}", rf"{out}\cdot {under}^{{1/2}}", rf"\frac{{{out * under}}}{{\sqrt{{{under}}}}}"]
    )
    return rf"{out}\sqrt{{{under}}}", same, rf"\sqrt{{{out * out * under + 1}}}"


def _nested_root(rng: random.Random, size: int) -> Built:
    a, b = rng.sample([2, 3, 5, 6, 7, 10, 11, 13], 2)
    a, b = a * 10 ** (2 * size), b * 10 ** (2 * size)
    return rf"\sqrt{{{a}}}+\sqrt{{{b}}}", rf"\sqrt{{{a + b}+2\sqrt{{{a * b}}}}}", rf"\sqrt{{{a + b}+2\sqrt{{{a * b + 1}}}}}"


def _cube_root(rng: random.Random, size: int) -> Built:
    under, out = rng.choice([2, 3, 4, 5, 7]), rng.randint(2, 9) * 10**size
    same = rng.choice([rf"\sqrt[3]{{{out**3 * under}}}", rf"{out}\cdot {under}^{{1/3}}"])
    return rf"{out}\sqrt[3]{{{under}}}", same, rf"\sqrt[3]{{{out**3 * under + 1}}}"


def _circle(rng: random.Random, size: int) -> Built:
    top, bottom = rng.randint(1, 9) * 10 ** (4 * size) + 1, rng.randint(2, 12)
    same = rng.choice([rf"{top}\pi/{bottom}", rf"\pi\cdot\frac{{{top}}}{{{bottom}}}", rf"\frac{{{2 * top}}}{{{2 * bottom}}}\pi"])
    return rf"\frac{{{top}\pi}}{{{bottom}}}", same, rf"\frac{{{top + 1}\pi}}{{{bottom}}}"


def _logarithm(rng: random.Random, size: int) -> Built:
    p, q, n = rng.choice([2, 3, 5]), rng.choice([7, 11, 13]), rng.randint(2, 5) * (size + 1)
    same = rng.choice([rf"\ln({p**n * q})", rf"\ln({p**n})+\ln({q})"])
    return rf"{n}\ln({p})+\ln({q})", same, rf"\ln({p**n * q + 1})"


def _exponential(rng: random.Random, size: int) -> Built:
    a, b = rng.randint(2, 9), rng.randint(1, 4) * (size + 1)
    return rf"{a}e^{{{b}}}", rng.choice([rf"{a}e\cdot e^{{{b - 1}}}", rf"\frac{{{a}}}{{e^{{-{b}}}}}"]), rf"{a}e^{{{b + 1}}}"


def _sine(rng: random.Random, size: int) -> Built:
    bottom = rng.randint(5, 9) + 4 * size
    angle = rf"\frac{{\pi}}{{{bottom}}}"
    return rf"\sin({angle})", rf"2\sin(\frac{{\pi}}{{{2 * bottom}}})\cos(\frac{{\pi}}{{{2 * bottom}}})", rf"\cos({angle})"


def _polynomial(rng: random.Random, size: int) -> Built:
    root, n = rng.randint(1, 9), rng.randint(6, 20) * (size + 1)
    return (
        rf"t^2-\frac{{{root * root}}}{{2^{{{2 * n}}}}}",
        rf"\left(t-\frac{{{root}}}{{2^{{{n}}}}}\right)\left(t+\frac{{{root}}}{{2^{{{n}}}}}\right)",
        rf"t^2-\frac{{{root * root}}}{{2^{{{2 * n - 1}}}}}",
    )


def _words(rng: random.Random, size: int) -> Built:
    """In the words of a program."""
    n = rng.randint(2, 9) * 4**size
    gold, same, other = rng.choice(
        [
            (rf"\frac{{\pi}}{{{n}}}", f"pi/{n}", f"pi/{n + 1}"),
            (rf"\sqrt{{{n}}}+1", f"1+sqrt({n})", f"1+sqrt({n + 1})"),
            (rf"{n}\times 10^{{{size + 3}}}", f"{n}e{size + 3}", f"{n}e{size + 4}"),
            (rf"{factorial(size + 2)}^{{{n}}}", f"{factorial(size + 2)}**{n}", f"{factorial(size + 2)}**{n + 1}"),
        ]
    )
    return gold, same, other


_KINDS: dict[str, Callable[[random.Random, int], Built]] = {
    "binomial": _binomial,
    "factorial": _factorial,
    "power": _power,
    "chance": _chance,
    "near a half": _half,
    "fraction": _fraction,
    "decimal": _decimal,
    "root": _root,
    "nested root": _nested_root,
    "cube root": _cube_root,
    "circle": _circle,
    "logarithm": _logarithm,
    "exponential": _exponential,
    "sine": _sine,
    "polynomial": _polynomial,
    "words": _words,
}
_FOR_LETTERS = ("alone", "in a tuple", "in a set", "in an equation", "in a matrix")
_NESTS: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "in a tuple": lambda text: rf"\left({text}, 7\right)",
    "in a set": lambda text: rf"\{{{text}, 10^{{999}}\}}",
    "as an interval's end": lambda text: rf"(-\infty, {text}]",
    "in a union": lambda text: rf"(-\infty, {text}) \cup (10^{{999}}, \infty)",
    "in an equation": lambda text: f"x = {text}",
    "in an equation of two letters": lambda text: f"y = 2x + {text}",
    "in an inequality": lambda text: f"x < {text}",
    "in a matrix": lambda text: rf"\begin{{pmatrix}} {text} & 0 \\ 0 & 1 \end{{pmatrix}}",
}
