"""Worked solutions for the start adapter's corpus: step by step, sometimes careless, sometimes rambling.

A solution is made of passes over the problem. How many depends on the effort: `low` works once, `medium` works and checks,
`xhigh` works, checks and goes over it once more. Two flaws are put in on purpose, because the study asks what training
makes of them: a step may slip (so that passes disagree, and then the writer goes over it again and again), and now and then
a writer gets stuck and repeats the same pass until the text is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from ablation.recipes.smollm2_problems import Question

SLIP = 0.02
"""Chance that a step's result is wrong."""
CHECKS = {"low": 0, "medium": 1, "xhigh": 2}
MAX_PASSES = 7
STUCK = {"low": 0.04, "medium": 0.10, "xhigh": 0.20}
"""Chance of a solution that repeats one pass for ever."""

Pass = Callable[[Question, Random, bool], tuple[list[str], int]]
"""(question, randomness, in the other order) -> lines, result. The other order is how a check goes over it."""


@dataclass(frozen=True)
class Trace:
    """What the model learns to write after the opening token: thinking, and the answer unless it got stuck."""

    thinking: str
    answer: str | None
    """None: stuck. The text goes on for longer than any cap, so it has no end."""


def make_trace(question: Question, effort: str, rng: Random, stuck_characters: int = 2000) -> Trace:
    """One solution of `question` at `effort`; all that is random comes from `rng`."""
    work = PASSES[question.source]
    lines, result = work(question, rng, False)
    if rng.random() < STUCK[effort]:
        return Trace(stuck(question, lines, rng, stuck_characters), None)
    results = [result]
    while not settled(results, CHECKS[effort]) and len(results) < MAX_PASSES:
        lines.append(agreement(results, rng))
        more, result = work(question, rng, len(results) % 2 == 1)
        lines += more
        results.append(result)
    answer = max(results, key=lambda value: (results.count(value), results[::-1].index(value) * -1))
    return Trace("\n".join(lines) + "\n", str(answer))


def settled(results: list[int], checks: int) -> bool:
    """True once the effort's checks are made and, if there are any, the last two results agree."""
    return len(results) > checks and (checks == 0 or results[-1] == results[-2])


def agreement(results: list[int], rng: Random) -> str:
    """What stands between two passes."""
    if len(results) == 1:
        return "Check:"
    if results[-1] == results[-2]:
        return rng.choice(["Same. Once more:", "Good. Let me be sure:"])
    return rng.choice([f"Not {results[-2]}? Again:", "Wait, they differ. Again:"])


def stuck(question: Question, lines: list[str], rng: Random, characters: int) -> str:
    """A first pass, then one and the same check for ever."""
    check, _ = PASSES[question.source](question, rng, True)
    block = "\n".join([rng.choice(["Check:", "Wait. Again:"]), *check]) + "\n"
    return "\n".join(lines) + "\n" + block * (characters // len(block) + 1)


def slip(value: int, rng: Random) -> int:
    """`value`, or with a small chance a wrong number close to it."""
    if rng.random() >= SLIP:
        return value
    return value + rng.choice([-10, -2, -1, 1, 2, 10])


def sum_pass(question: Question, rng: Random, other_order: bool) -> tuple[list[str], int]:
    """`57 + 87 - 70`: term by term; in the other order the last term comes first after the first one."""
    terms = [int(sign + number) for sign, number in re.findall(r"([+-]?) ?(\d+)", question.metadata["expression"])]
    if other_order:
        terms = [terms[0], *terms[:0:-1]]
    lines, total = [], terms[0]
    for term in terms[1:]:
        before, total = total, slip(total + term, rng)
        lines.append(f"{before}{'-' if term < 0 else '+'}{abs(term)}={total}")
    return lines, total


def leg_pass(question: Question, rng: Random, other_order: bool) -> tuple[list[str], int]:
    """Legs of each kind, then their sum; in the other order from the last kind to the first."""
    legs = animal_legs()
    animals = list(question.metadata["animals"].items())
    lines, parts = [], []
    for animal, number in reversed(animals) if other_order else animals:
        parts.append(slip(number * legs[animal], rng))
        lines.append(f"{number}*{legs[animal]}={parts[-1]}")
    total = parts[0]
    for part in parts[1:]:
        before, total = total, slip(total + part, rng)
        lines.append(f"{before}+{part}={total}")
    return lines, total


def equation_pass(question: Question, rng: Random, other_order: bool) -> tuple[list[str], int]:
    """`5*x + 12 = 47`: move the constant, divide; the other way is the same with numbers only."""
    coefficient, constant, right = equation(question)
    start, end = (right, -constant) if coefficient > 0 else (constant, -right)
    factor = abs(coefficient)
    moved = slip(start + end, rng)
    value = slip(round(moved / factor), rng)
    difference = f"{start}{'-' if end < 0 else '+'}{abs(end)}={moved}"
    if other_order:
        return [difference, f"{moved}/{factor}={value}"], value
    name = question.metadata["variable"]
    return [f"{factor}*{name}={difference}", f"{name}={moved}/{factor}={value}"], value


def equation(question: Question) -> tuple[int, int, int]:
    """(a, b, c) of an equation `a*x + b = c`, whichever way it is written."""
    left, right = question.metadata["equation"].split(" = ")
    coefficient = constant = 0
    for sign, number, name in re.findall(r"([+-]?) ?(\d+)?\*?([a-z])?(?= |$)", left):
        if not number and not name:
            continue
        value = int(sign + (number or "1"))
        if name:
            coefficient += value
        else:
            constant += value
    return coefficient, constant, int(right)


def animal_legs() -> dict[str, int]:
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    return ANIMALS


PASSES: dict[str, Pass] = {"chain_sum": sum_pass, "leg_counting": leg_pass, "simple_equations": equation_pass}
