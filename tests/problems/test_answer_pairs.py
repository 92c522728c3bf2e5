"""A sample of the pairs that `make bench` grades: none is taken wrongly, and none that is right is refused."""

import pytest

from ablation.problems.grade import grade_all
from ablation.problems.problem import Problem
from ablation.problems.workers import close_workers

from .answer_pairs import answer_pairs
from .maths_pairs import Pair


@pytest.fixture(scope="module")
def known():
    yield answer_pairs()
    close_workers()


def wrong(some: list[Pair]) -> list[Pair]:
    grades = grade_all([(Problem("p", "s", "?", "math", pair.gold), rf"\boxed{{{pair.answer}}}") for pair in some])
    return [pair for pair, one in zip(some, grades, strict=True) if one.status != ("correct" if pair.equal else "incorrect")]


def test_there_are_thousands_of_both_kinds_and_few_come_twice(known):
    assert len(known) >= 3_000
    assert sum(pair.equal for pair in known) == len(known) // 3
    assert len(set(known)) > 0.98 * len(known)
    assert known == answer_pairs()


def test_a_sample(known):
    assert wrong(known[::23]) == []


@pytest.mark.slow
def test_all_of_them(known):
    assert wrong(known) == []
