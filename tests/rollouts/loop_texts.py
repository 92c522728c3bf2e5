"""Generated texts that loop, and texts that are regular by nature and do not: for the rates of the loop checks.

A looping text is a made-up beginning of words that never come again, then a unit of 5 to 400 words repeated as often as the plan
language asks (at least three times, a cut one counted in part), in any phase and cut anywhere.
"""

from __future__ import annotations

import random


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
