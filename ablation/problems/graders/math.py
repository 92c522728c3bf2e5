r"""`math`: the last complete `\boxed{...}` of the visible answer against the gold; without a box there is no answer.

`problems.extract` has the rule of the box, `math_text` and `math_form` the rules by which both texts are read, `math_same` when
two forms are the same. Two exact rationals are compared here and exactly. All else goes to a worker process (`math_work`) under
limits, where `math_exact` compares numbers and expressions, never after rounding, and math-verify relations and sets. There a
decimal equals a value that is not rational if both round to the same six places (three digits, where that is finer), letters are
told apart by case, a free letter i is the imaginary unit, and `\log` without a base has base ten.

Reasons of a wrong answer: `wrong_answer`, `unreadable_answer` (no mathematics, or words that may be misread as products of
letters), `not_comparable` (neither proven to be the same nor found to be apart), `grader_timeout` and `memory_limit` (the answer
needs more than the limits), `too_long`. `grader_error`: `unreadable_gold`, or a worker that crashed, stalled or could not be
started.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

from ablation.errors import UsageError
from ablation.problems.extract import boxed_answer, last_box
from ablation.problems.graders.failed import failed_grade
from ablation.problems.graders.math_form import LONGEST, Form, Parts, Unreadable, Value, read_form, values
from ablation.problems.graders.math_same import same
from ablation.problems.graders.math_text import without_e
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.problems.workers import Failure, Limits, run_items

LIMITS = Limits()
WORK = "ablation.problems.graders.math_work"
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
_COMMAND = re.compile(r"\\(?:text|mathrm|operatorname|mbox|textrm|begin|end|mathbb)\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3,}")


def grade_many(pairs: Sequence[tuple[Problem, str]], workers: int = 1, limits: Limits = LIMITS) -> list[Grade]:
    """The grade of each pair. Raises `UsageError` if math-verify is needed and missing."""
    found = [_grade_here(problem, answer) for problem, answer in pairs]
    asked = [one for one in found if isinstance(one, _Asked)]
    if not asked:
        return [one for one in found if isinstance(one, Grade)]
    if find_spec("math_verify") is None:
        raise UsageError("grader `math` needs the package math-verify", hint="Install it: pip install -e '.[math]'")
    results = iter(run_items(WORK, [[one.gold, one.answer] for one in asked], limits=limits, workers=workers))
    return [one if isinstance(one, Grade) else _grade_of(one, next(results)) for one in found]


def gold_answer(problem: Problem) -> str | None:
    """The gold in a box."""
    return rf"\boxed{{{problem.gold}}}"


@dataclass(frozen=True)
class _Asked:
    """Two texts that need algebra."""

    gold: str
    answer: str
    extracted: str
    """`answer` as it stands in the box."""


class _NeedsAlgebra(Exception):
    pass


def _no_algebra(gold: str, answer: str) -> bool:
    raise _NeedsAlgebra


def _grade_here(problem: Problem, answer: str) -> Grade | _Asked:
    """The grade, if exact numbers alone decide it."""
    gold_text = last_box(problem.gold) or problem.gold
    try:
        gold = _gold_form(gold_text)
    except Unreadable:
        return Grade("grader_error", None, "unreadable_gold")
    extracted = boxed_answer(answer)
    if isinstance(extracted, Grade):
        return extracted
    asked = _Asked(gold_text, extracted if "e" in _COMMAND.sub("", gold_text) else without_e(extracted), extracted)
    try:
        given = read_form(asked.answer)
    except Unreadable:
        return Grade("incorrect", extracted, "too_long" if len(extracted) > LONGEST else "unreadable_answer")
    try:
        return _verdict(same(gold, given, _no_algebra), asked)
    except _NeedsAlgebra:
        return asked


@lru_cache(maxsize=1024)
def _gold_form(text: str) -> Form:
    return read_form(text)


def _verdict(correct: bool, asked: _Asked) -> Grade:
    if correct:
        return Grade("correct", asked.extracted)
    reason = "unreadable_answer" if _may_be_misread(_gold_form(asked.gold), read_form(asked.answer)) else "wrong_answer"
    return Grade("incorrect", asked.extracted, reason)


def _may_be_misread(gold: Form, answer: Form) -> bool:
    """`root 2` is no product of five letters, and `0,5` for one number may have a decimal comma."""
    if isinstance(gold, Value) and isinstance(answer, Parts) and _DECIMAL_COMMA.fullmatch(answer.whole):
        return True
    words = (word for value in values(answer) for word in _WORD.findall(_COMMAND.sub(" ", value.text)))
    return any(not set(word) <= set(gold.whole) for word in words)


def _grade_of(asked: _Asked, result: dict | Failure) -> Grade:
    if isinstance(result, Failure) or "failed" in result:
        return failed_grade(result, asked.extracted)
    return _verdict(result["same"], asked)
