"""Graders. They read the visible answer only: what follows the token that closes the thinking.

`integer`: the whole visible answer must be one integer, and nothing is searched for inside a longer text. Allowed around it:
white space, one `\\boxed{...}`, one pair of math dollars, and a currency sign ($, \\$, €, £) before or after the sign of the
number. Thousands may be marked, in every group and always in the same way, by a comma, `{,}`, `\\,`, one space, a no-break or a
thin space. A trailing dot or a dot and zeros may follow (`6.`, `6.00`). Anything else, `12.5` and `1,25` too, is no answer.

`exact`: the visible answer without surrounding white space must equal the gold without surrounding white space.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ablation.problems.problem import Problem

Status = Literal["correct", "incorrect", "no_answer", "grader_error"]


@dataclass(frozen=True)
class Grade:
    """What the grader found. `extracted` is the answer it compared, None if there was none."""

    status: Status
    extracted: str | None


_INTEGER = re.compile(
    r"""
    (?P<before>[+\-\u2212]?) \s*
    (?: \\?\$ | [€£] )? \s*
    (?P<sign>[+\-\u2212]?) \s*
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


def read_exact(text: str) -> str | None:
    """`text` without surrounding white space; None if nothing is left."""
    return text.strip() or None


_READERS = {"integer": read_integer, "exact": read_exact}


def grade(problem: Problem, answer_text: str) -> Grade:
    """Grade a visible answer. `grader_error` means that the gold itself cannot be read: it says nothing about the answer."""
    read = _READERS[problem.grader]
    gold, extracted = read(problem.gold), read(answer_text)
    if gold is None:
        return Grade("grader_error", extracted)
    if extracted is None:
        return Grade("no_answer", None)
    return Grade("correct" if extracted == gold else "incorrect", extracted)


def check_problems(problems: Mapping[str, Problem]) -> list[str]:
    """One line for each problem whose gold does not grade as correct against itself; empty if all do."""
    return [
        f"problem `{problem.id}`: gold `{problem.gold}` does not grade as correct against itself (grader `{problem.grader}`)"
        for problem in problems.values()
        if grade(problem, problem.gold).status != "correct"
    ]
