"""`exact`: the visible answer without surrounding white space must equal the gold without surrounding white space."""

from __future__ import annotations

from collections.abc import Sequence

from ablation.problems.graders.text import grade_read
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem


def read_exact(text: str) -> str | None:
    """`text` without surrounding white space; None if nothing is left."""
    return text.strip() or None


def grade_many(pairs: Sequence[tuple[Problem, str]], workers: int = 1) -> list[Grade]:
    """Both sides compared character by character."""
    return [grade_read(read_exact, problem, answer, "empty") for problem, answer in pairs]


def gold_answer(problem: Problem) -> str | None:
    """The gold itself."""
    return problem.gold
