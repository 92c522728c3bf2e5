r"""`math`: the last complete `\boxed{...}` of the visible answer against the gold; without a box there is no answer.

`problems.extract` has the rule of the box, `math_form` the rules by which both texts are read, `math_same` when two forms are
the same. Two exact rationals are compared here and exactly. All else goes to math-verify in a worker process (`math_work`) under
limits. There a decimal equals an expression that is not rational if they agree to six places, letters are told apart by case, a
free letter i is the imaginary unit, `\log` without a base has base ten, and two expressions in the same letters for whose
equality algebra finds no proof are equal if their values agree to 30 digits at five points.

Reasons of a wrong answer: `wrong_answer`, `unreadable_answer` (no mathematics), `not_comparable` (no algebra for this pair),
`grader_timeout` and `memory_limit` (the answer needs more than the limits), `too_long`. `grader_error`: `unreadable_gold`, or a
worker that crashed, stalled or could not be started.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec

from ablation.errors import UsageError
from ablation.problems.extract import boxed_answer, last_box
from ablation.problems.graders.failed import failed_grade
from ablation.problems.graders.math_form import LONGEST, Form, Unreadable, read_form
from ablation.problems.graders.math_same import same
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.problems.workers import Failure, Limits, run_items

LIMITS = Limits()
WORK = "ablation.problems.graders.math_work"


def grade_many(pairs: Sequence[tuple[Problem, str]], workers: int = 1, limits: Limits = LIMITS) -> list[Grade]:
    """The grade of each pair. Raises `UsageError` if math-verify is needed and missing."""
    grades: list[Grade | None] = []
    items: list[list[str]] = []
    for problem, answer in pairs:
        found = _grade_here(problem, answer)
        if isinstance(found, list):
            items.append(found)
        grades.append(None if isinstance(found, list) else found)
    if not items:
        return [one for one in grades if one is not None]
    if find_spec("math_verify") is None:
        raise UsageError("grader `math` needs the package math-verify", hint="Install it: pip install -e '.[math]'")
    results = iter(zip(items, run_items(WORK, items, limits=limits, workers=workers), strict=True))
    return [one if one is not None else _grade_of(*next(results)) for one in grades]


def gold_answer(problem: Problem) -> str | None:
    """The gold in a box."""
    return rf"\boxed{{{problem.gold}}}"


class _NeedsAlgebra(Exception):
    pass


def _no_algebra(gold: str, answer: str) -> bool:
    raise _NeedsAlgebra


def _grade_here(problem: Problem, answer: str) -> Grade | list[str]:
    """The grade, if exact numbers alone decide it, or else [gold, answer] for a worker."""
    gold_text = last_box(problem.gold) or problem.gold
    try:
        gold = _gold_form(gold_text)
    except Unreadable:
        return Grade("grader_error", None, "unreadable_gold")
    extracted = boxed_answer(answer)
    if isinstance(extracted, Grade):
        return extracted
    try:
        given = read_form(extracted)
    except Unreadable:
        return Grade("incorrect", extracted, "too_long" if len(extracted) > LONGEST else "unreadable_answer")
    try:
        return _verdict(same(gold, given, _no_algebra), extracted)
    except _NeedsAlgebra:
        return [gold_text, extracted]


@lru_cache(maxsize=1024)
def _gold_form(text: str) -> Form:
    return read_form(text)


def _verdict(correct: bool, extracted: str) -> Grade:
    return Grade("correct", extracted) if correct else Grade("incorrect", extracted, "wrong_answer")


def _grade_of(item: list[str], result: dict | Failure) -> Grade:
    extracted = item[1]
    if isinstance(result, Failure) or "failed" in result:
        return failed_grade(result, extracted)
    return _verdict(result["same"], extracted)
