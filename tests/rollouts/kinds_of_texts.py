"""Texts of known kind, made by rules: those that go on without saying anything new, and those that are regular by nature."""

from __future__ import annotations

import random
from collections.abc import Iterator

LOOPS = ("exact", "long block", "cut", "counter", "two counters", "cycling", "chinese")
KINDS = (*LOOPS, "cases", "trials", "squares", "list", "proof", "code", "digits", "prose")
_WORDS = [
    "we",
    "know",
    "that",
    "this",
    "sum",
    "of",
    "terms",
    "must",
    "divide",
    "whole",
    "number",
    "so",
    "then",
    "check",
    "each",
    "prime",
    "factor",
    "again",
    "because",
    "result",
    "was",
    "wrong",
    "maybe",
    "consider",
    "next",
    "step",
    "value",
    "under",
    "limit",
    "where",
    "both",
    "sides",
    "hold",
    "since",
    "first",
    "second",
    "third",
    "area",
    "angle",
    "point",
    "line",
    "circle",
    "between",
    "long",
]


def texts(kind: str, count: int) -> Iterator[str]:
    """`count` texts of a kind, each from its own seed."""
    for number in range(count):
        yield _text(kind, random.Random(f"{kind} {number}"))


def _text(kind: str, draw: random.Random) -> str:
    def sentence(length: int) -> str:
        return " ".join(word for _ in range(-(-length // 9)) for word in draw.sample(_WORDS, min(length, 9)))  # nobody stutters

    prose = ". ".join(sentence(draw.randint(7, 15)) for _ in range(40))
    said, start = sentence(draw.randint(9, 16)), draw.randint(0, 900)
    many = range(start, start + draw.randint(60, 120))
    return {
        "exact": lambda: prose + f". {said}. " * 60,
        "long block": lambda: f"{sentence(90)}. " * 6,
        "cut": lambda: (f"{said}. " * 60)[: -draw.randint(1, len(said))],
        "counter": lambda: prose + "".join(f"Step {i}: {said}. " for i in many),
        "two counters": lambda: (
            prose + "".join(f"Entry {i}: {said} {sentence(0)}and the value {7 * i} is {said} too. " for i in many)
        ),
        "cycling": lambda: "".join(f"Let me try {i % 5} now, {said}. " for i in many),
        "chinese": lambda: prose + "".join(draw.choices("我们再检查这个结果是否正确", k=9)) * 60,
        "cases": lambda: "".join(
            f"Case a = {a}, b = {b}: a + b = {a + b}, so the sum is not {start}. " for a in range(9) for b in range(9)
        ),
        "trials": lambda: "".join(f"{k} does not divide {start}, remainder {start % k}. " for k in range(2, 90)),
        "squares": lambda: "".join(f"| {i} | {i * i} | {i**3} |\n" for i in many),
        "list": lambda: "".join(f"- {sentence(draw.randint(3, 6))}\n" for _ in many),
        "proof": lambda: "".join(f"For n = {i} we get f({i}) = {3 * i + 1} and g({i}) = {i * i % 7}, which fits. " for i in many),
        "code": lambda: "".join(
            f"{draw.choice(_WORDS)}_{draw.choice(_WORDS)} = {draw.choice(_WORDS)}({i}, {draw.choice(_WORDS)})\n" for i in many
        ),
        "digits": lambda: " ".join(str(draw.randint(0, 10**6)) for _ in range(300)),
        "prose": lambda: prose,
    }[kind]()
