"""Generated texts that loop, and texts that are regular by nature and do not: for the rates of the loop checks.

A looping text is a made-up beginning of words that never come again, then a unit of 5 to 400 words repeated as often as the plan
language asks (at least three times, a cut one counted in part), in any phase and cut anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

LOOPS = ("exact", "long block", "cut", "counter", "two counters", "cycling", "chinese")
KINDS = (*LOOPS, "cases", "trials", "squares", "list", "proof", "code", "digits", "prose")
"""Kinds of texts of 200 words or more: `LOOPS` go on without saying anything new, the others are regular by nature."""


def looping(rng: random.Random) -> str:
    """A beginning, and a unit repeated 3 to 12 times."""
    size = rng.choice([5, 8, 13, 30, 92, 200, 400])
    unit = [f"{rng.choice(WORDS)}{rng.randrange(1000)}" for _ in range(size)]
    words = [f"start{k}" for k in range(rng.randrange(0, 60))]
    length = int(size * (max(3, 2 + 48 / size**2) + rng.random() * 9)) + 1
    phase = rng.randrange(size)
    return " ".join(words + [unit[(phase + k) % size] for k in range(max(length, 16))])


def nearly_looping(rng: random.Random) -> str:
    """A sentence of 60 to 120 words again and again, with one new word each time: no period, but nearly nothing new."""
    size = rng.randrange(60, 120)
    sentence = [f"{rng.choice(WORDS)}{rng.randrange(1000)}" for _ in range(size)]
    place = rng.randrange(size)
    return " ".join(word for n in range(8) for word in [*sentence[:place], f"try{n}", *sentence[place:]])


def natural(rng: random.Random) -> list[str]:
    """Regular texts with other numbers each time: tables, lists, proofs by cases, digit strings, code, checks of one's own work."""
    a, b, n = rng.randrange(2, 99), rng.randrange(2, 99), rng.randrange(12, 30)
    digits = "".join(rng.choice("0123456789") for _ in range(300))
    return [
        "| n | n^2 | n^3 |\n|---|---|---|\n" + "\n".join(f"| {k} | {k * k} | {k**3} |" for k in range(a, a + n)),
        "\n".join(f"{k}. {rng.choice(WORDS)} the {rng.choice(WORDS)} of {k * b}" for k in range(1, n)),
        "\n".join(f"Case n = {k} (mod {n}): n^2 = {k * k % n} (mod {n}), so it does not hold." for k in range(n))
        + "\nNo case holds.",
        "\n".join(f"{k} does not divide {a * 100 + 97}" for k in range(2, 2 + n)) + "\nso it is prime.",
        f"The expansion is 0.{digits} and so on.",
        f"{a}^{b} has the last digits {'0' * 12}, and 1/3 = 0.{'3' * 12}, ... . . . as before.",
        "def f(x):\n" + "\n".join(f"    if x == {k}:\n        return {k * a + b}" for k in range(n)) + "\n    return None",
        "\n".join(f"    print({rng.choice(WORDS)}_{k}, end='')" for k in range(n)),
        "\n".join(f"{a} * {k} = {a * k}" for k in range(1, n)) + f"\nThe sum is {a * n * (n - 1) // 2}.",
        f"{a} + {b} = {a + b}. Let me check: {a} + {b} = {a + b}. Yes, {a} + {b} = {a + b}. The answer is {a + b}.",
        "import os\nimport re\nimport sys\n\n\n"
        + "\n\n\n".join(f"class {w.title()}(Base):\n    pass" for w in rng.sample(WORDS, 8)),
        "[" + ", ".join(f'{{"id": {k}, "x": {rng.randrange(999)}, "y": {rng.randrange(999)}}}' for k in range(n)) + "]",
    ]


_TEXT = """so then we have that the sum of both sides is equal but wait maybe this case needs another look because first term was
wrong check again let me compute value each prime factor root square angle triangle circle point line segment area volume number
digit even odd half twice three four integer real complex polynomial degree coefficient equation"""
WORDS = _TEXT.split()


def texts(kind: str, count: int) -> Iterator[str]:
    """`count` texts of a kind, each from its own seed."""
    for number in range(count):
        yield _text(kind, random.Random(f"{kind} {number}"))


def _text(kind: str, draw: random.Random) -> str:
    def sentence(length: int) -> str:
        return " ".join(word for _ in range(-(-length // 9)) for word in draw.sample(WORDS, min(length, 9)))  # nobody stutters

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
            f"{draw.choice(WORDS)}_{draw.choice(WORDS)} = {draw.choice(WORDS)}({i}, {draw.choice(WORDS)})\n" for i in many
        ),
        "digits": lambda: " ".join(str(draw.randint(0, 10**6)) for _ in range(300)),
        "prose": lambda: prose,
    }[kind]()
