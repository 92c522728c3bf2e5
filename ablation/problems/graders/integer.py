"""`integer`: the whole visible answer must be one integer, and nothing is searched for inside a longer text.

Allowed around it: white space, one `\\boxed{...}`, one pair of math dollars, and a currency sign ($, \\$, €, £) before or after
the sign of the number. Thousands may be marked, in every group and always in the same way, by a comma, `{,}`, `\\,`, one space, a
no-break or a thin space. A trailing dot or a dot and zeros may follow (`6.`, `6.00`). Anything else, `12.5` and `1,25` too, is no
answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from ablation.problems.graders.text import grade_read
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem

# `+` after a quantifier: what it took is not given back, or a long run of blanks would be shared out in every possible way.
_INTEGER = re.compile(
    r"""
    (?P<before>[+\-\u2212]?) \s*+
    (?: (?: \\?\$ | [€£] ) \s*+ )?+
    (?P<sign>[+\-\u2212]?) \s*+
    (?P<digits>
        [0-9]{1,3} (?P<mark> , | \{,\} | \\, | [ \u00a0\u2009\u202f] ) [0-9]{3} (?: (?P=mark) [0-9]{3} )*
      | [0-9]+
    )
    (?: \. 0* )?
    """,
    re.VERBOSE,
)
_BOX = re.compile(r"\\boxed\s*\{(.*)\}", re.DOTALL)
_MINUS = ("-", "\u2212")


def read_integer(text: str) -> str | None:
    """The one integer that `text` is, in plain digits with a leading `-` if negative; None if it is not one integer.

    Works on digits as text, so the length of a number costs no more than reading it.
    """
    text = text.strip()
    if len(text) >= 2 and text.startswith("$") and text.endswith("$"):
        text = text[1:-1].strip()
    if box := _BOX.fullmatch(text):
        text = box[1].strip()
    found = _INTEGER.fullmatch(text)
    if not found or (found["before"] and found["sign"]):
        return None
    digits = re.sub(r"[^0-9]", "", found["digits"]).lstrip("0") or "0"
    negative = (found["before"] or found["sign"]) in _MINUS and digits != "0"
    return f"-{digits}" if negative else digits


def grade_many(pairs: Sequence[tuple[Problem, str]], workers: int = 1) -> list[Grade]:
    """Both sides read as integers and compared digit by digit."""
    read = cache(read_integer)  # a gold and most answers come many times
    return [grade_read(read, problem, answer, "not_one_integer") for problem, answer in pairs]


def gold_answer(problem: Problem) -> str | None:
    """The gold itself."""
    return problem.gold
