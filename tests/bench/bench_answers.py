"""Answers of mathematics whose truth is known by construction, graded by ours and by bare math-verify in the same run.

The pairs are those of `tests/problems/answer_pairs.py`: numbers of every form, kind, size and sign, nested in tuples, sets, intervals,
equations and matrices, and near misses of them.
"""

from __future__ import annotations

import logging
import os

from ablation.problems.graders import math
from ablation.problems.problem import Problem
from tests.problems.answer_pairs import answer_pairs
from tests.problems.maths_pairs import Pair

from .row import Row

LEAST, LIMIT_REFUSED = 3_000, 0.005


def rows() -> list[Row]:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    known = answer_pairs()
    graded = math.grade_many(
        [(Problem("p", "pairs", "?", "math", pair.gold), rf"\boxed{{{pair.answer}}}") for pair in known],
        workers=os.cpu_count() or 1,
    )
    ours = [one.status == "correct" for one in graded]
    errors = sum(one.status == "grader_error" for one in graded)
    bare = [verify(parse(rf"\boxed{{{pair.gold}}}"), parse(rf"\boxed{{{pair.answer}}}")) for pair in known]
    taken, refused, equal = _wrong(known, ours)
    taken_bare, refused_bare, _ = _wrong(known, bare)
    different = len(known) - equal
    return [
        Row("answer pairs of known truth", str(len(known)), f">= {LEAST}", len(known) >= LEAST),
        Row("wrong answers taken, of the pairs that differ", f"{taken} of {different}", "0", taken == 0),
        Row(
            "right answers refused, of the equal pairs",
            f"{refused} of {equal}",
            f"<= {LIMIT_REFUSED:.1%}",
            refused <= LIMIT_REFUSED * equal,
        ),
        Row("... grader errors", str(errors), "0", errors == 0),
        Row("... bare math-verify: wrong answers taken", f"{taken_bare} of {different}", "none", True),
        Row("... bare math-verify: right answers refused", f"{refused_bare} of {equal}", "none", True),
    ]


def _wrong(known: list[Pair], found: list[bool]) -> tuple[int, int, int]:
    """Different pairs taken, equal pairs refused, equal pairs."""
    taken = sum(one and not pair.equal for pair, one in zip(known, found, strict=True))
    refused = sum(pair.equal and not one for pair, one in zip(known, found, strict=True))
    return taken, refused, sum(pair.equal for pair in known)
