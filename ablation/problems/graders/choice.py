"""`choice`: one letter A to Z, in the last complete box, or as the whole visible answer if there is no box.

Around the letter: white space, math dollars, `**`, `\\text{...}`, `\\textbf{...}`, `\\mathrm{...}`, `\\mathbf{...}`,
parentheses; after it a dot, a closing parenthesis or a colon, and after one of those (or after `(B)`) the option's text on the
same line. Upper and lower case are the same letter. More letters, a word or a sentence around the letter are no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from ablation.problems.extract import boxed_answer, strip_groups
from ablation.problems.graders.text import grade_read
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem

_WRAPPED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf|mathsf)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"(?:\(\s*([A-Za-z])\s*\)|([A-Za-z])[.):])(?:[.:]?(?:\s|\\ |\\quad|~)\s*[^\n]*|[.:]?)|([A-Za-z])")


def read_letter(text: str) -> str | None:
    """The one letter that the box or the whole text is, in upper case; None if it is not one letter."""
    boxed = boxed_answer(text)
    if isinstance(boxed, Grade) and boxed.reason != "no_box":
        return None
    text = (text if isinstance(boxed, Grade) else boxed).replace("**", "").strip()
    if len(text) > 2 and text.startswith("$") and text.endswith("$"):
        text = text[1:-1].strip()
    text = strip_groups(_WRAPPED.sub(r"\1", text))
    found = _LETTER.fullmatch(text)
    return next(letter for letter in found.groups() if letter).upper() if found else None


def grade_many(pairs: Sequence[tuple[Problem, str]], workers: int = 1) -> list[Grade]:
    """Both sides read as letters and compared."""
    read = cache(read_letter)  # a gold and most answers come many times
    return [grade_read(read, problem, answer, "not_one_letter") for problem, answer in pairs]


def gold_answer(problem: Problem) -> str | None:
    """The gold itself."""
    return problem.gold
