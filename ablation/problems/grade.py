"""Grading. Graders read the visible answer only: what follows the token that closes the thinking.

A grade has one of four statuses. `grader_error` says that the grader failed (a gold that it cannot read, a worker that cannot
start): it says nothing about the answer and is never counted as a wrong one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from ablation.problems.outcome import Grade, Status
from ablation.problems.problem import Problem

__all__ = ["Grade", "Status", "check_problems", "grade", "grade_all"]


def grade(problem: Problem, answer_text: str) -> Grade:
    """Grade one visible answer."""
    return grade_all([(problem, answer_text)])[0]


def grade_all(pairs: Iterable[tuple[Problem, str]], workers: int | None = None) -> list[Grade]:
    """The grade of each (problem, visible answer), in order: what `grade` gives for each of them.

    Equal answers to one problem are graded once. `workers` (None: one per usable processor) is the most processes at a time, for
    the graders that need any.

    Raises:
        UsageError: a grader's package or program is missing.
    """
    pairs = list(pairs)
    by_grader: dict[str, list[int]] = {}
    for place, (problem, _) in enumerate(pairs):
        by_grader.setdefault(problem.grader, []).append(place)
    grades: list[Any] = [None] * len(pairs)
    for name, places in by_grader.items():
        keys = [(id(pairs[place][0]), pairs[place][1]) for place in places]
        distinct = {key: pairs[place] for key, place in zip(keys, places, strict=True)}
        found = grader_module(name).grade_many(list(distinct.values()), workers or usable_processors())
        by_key = dict(zip(distinct, found, strict=True))
        for place, key in zip(places, keys, strict=True):
            grades[place] = by_key[key]
    return grades


def grader_module(name: str) -> Any:
    """The module of one grader, imported when it is first needed."""
    return import_module(f"ablation.problems.graders.{name}")


def usable_processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_problems(problems: Mapping[str, Problem]) -> list[str]:
    """One line for each problem whose gold does not grade as correct against itself; empty if all do."""
    golds = {problem.id: grader_module(problem.grader).gold_answer(problem) for problem in problems.values()}
    asked = [problem for problem in problems.values() if golds[problem.id] is not None]
    grades = grade_all([(problem, golds[problem.id] or "") for problem in asked])
    return [
        f"problem `{problem.id}`: {_failed(problem, found)} (grader `{problem.grader}`)"
        for problem, found in zip(asked, grades, strict=True)
        if found.status != "correct"
    ]


def _failed(problem: Problem, found: Grade) -> str:
    if problem.grader == "code":
        return f"its solution does not pass its own tests: {found.reason}"
    if problem.grader == "reasoning_gym" and found.status == "grader_error":
        return f"reasoning-gym does not make this problem of its dataset, seed, index and config again: {found.reason}"
    return f"gold `{problem.gold}` does not grade as correct against itself"
