"""Graders that read one text on each side and compare what they read."""

from __future__ import annotations

from collections.abc import Callable

from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem


def grade_read(read: Callable[[str], str | None], problem: Problem, answer: str, unread: str) -> Grade:
    """Correct if `read` finds the same in the answer as in the gold; `unread` is the reason if it finds nothing."""
    gold, extracted = read(problem.gold), read(answer)
    if gold is None:
        return Grade("grader_error", extracted, "unreadable_gold")
    if extracted is None:
        return Grade("no_answer", None, "empty" if not answer.strip() else unread)
    return Grade("correct", extracted) if extracted == gold else Grade("incorrect", extracted, "wrong_answer")
