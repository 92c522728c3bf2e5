"""Grading of mathematics beside bare math-verify (its own parse and verify, in this process), and how often each is wrong.

The pairs are the 500 of known truth (`tests/problems/maths_pairs.py`), each answer in a box. Ours runs with its limits of time and
memory in force, in one worker process that this one waits for, so both use one core. Rounds alternate; the shortest of each counts.
"""

from __future__ import annotations

import logging
import time

from ablation.problems.graders import math
from ablation.problems.problem import Problem
from ablation.problems.workers import close_workers
from tests.problems.maths_pairs import Pair, pairs

from .row import Row

ROUNDS = 2
LIMIT_SPEED, LIMIT_WRONG = 0.6, 0.01


def rows() -> list[Row]:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    known = pairs()
    texts = [(rf"\boxed{{{pair.gold}}}", rf"The answer is \boxed{{{pair.answer}}}.") for pair in known]
    problems = [Problem(str(place), "pairs", "?", "math", pair.gold) for place, pair in enumerate(known)]

    def bare() -> list[bool]:
        return [verify(parse(gold), parse(answer)) for gold, answer in texts]

    def ours() -> list[bool]:
        close_workers()  # a new worker has seen none of these texts; its start counts
        graded = math.grade_many([(problem, text[1]) for problem, text in zip(problems, texts, strict=True)])
        return [one.status == "correct" for one in graded]

    def fresh(grade) -> tuple[float, list[bool]]:
        _forget()
        begun = time.perf_counter()
        found = grade()
        return time.perf_counter() - begun, found

    timed = [(fresh(bare), fresh(ours)) for _ in range(ROUNDS)]
    seconds_bare, seconds_ours = (min(one[side][0] for one in timed) for side in (0, 1))
    ratio = seconds_bare / seconds_ours
    rate = f"{ratio:.2f}x ({len(known) / seconds_ours:.0f} against {len(known) / seconds_bare:.0f} a second)"
    return [
        Row("500 maths answers under limits, rate against bare math-verify", rate, f">= {LIMIT_SPEED}x", ratio >= LIMIT_SPEED),
        _wrong("wrong answers taken, of the near misses", known, timed[0][1][1], equal=False),
        _wrong("right answers refused, of the equal forms", known, timed[0][1][1], equal=True),
        _wrong("... bare math-verify: wrong answers taken", known, timed[0][0][1], equal=False, limit=False),
        _wrong("... bare math-verify: right answers refused", known, timed[0][0][1], equal=True, limit=False),
    ]


def _wrong(what: str, known: list[Pair], found: list[bool], *, equal: bool, limit: bool = True) -> Row:
    asked = [one for pair, one in zip(known, found, strict=True) if pair.equal == equal]
    wrong = sum(one != equal for one in asked)
    good = wrong <= LIMIT_WRONG * len(asked)
    return Row(what, f"{wrong} of {len(asked)}", "<= 1%" if limit else "none", good or not limit)


def _forget() -> None:
    """Empty the caches of the packages, so that no round profits from the one before."""
    import sympy.core.cache
    from math_verify import parser

    sympy.core.cache.clear_cache()
    for function in (parser.parse_latex_cached, parser.parse_expr_cached, parser.extract_latex):
        function.cache_clear()
