"""The grader `math` on pairs of known truth. At most 1% may be wrong either way; here none is, so there is nothing to explain."""

import pytest

from ablation.problems.grade import grade_all
from ablation.problems.problem import Problem
from ablation.problems.workers import close_workers

from .maths_pairs import KINDS, PER_KIND, Pair, pairs


@pytest.fixture(scope="module")
def known():
    yield pairs()
    close_workers()


def wrong(some: list[Pair]) -> list[Pair]:
    grades = grade_all([(Problem("p", "s", "?", "math", pair.gold), rf"\boxed{{{pair.answer}}}") for pair in some])
    assert {one.status for one in grades} <= {"correct", "incorrect"}
    return [pair for pair, one in zip(some, grades, strict=True) if (one.status == "correct") != pair.equal]


def test_there_are_500_pairs_of_both_kinds_and_few_come_twice(known):
    assert len(known) == KINDS * PER_KIND == 500
    assert sum(pair.equal for pair in known) == 260
    assert len(set(known)) >= 490
    assert known == pairs()


def test_two_of_every_kind(known):
    some = [pair for place, pair in enumerate(known) if place % PER_KIND in (4, 5)]
    assert len(some) == 2 * KINDS
    assert wrong(some) == []


@pytest.mark.slow
def test_all_of_them(known):
    assert wrong(known) == []
