import math
import time

import pytest
from hypothesis import given

from ablation.problems.sandbox.compare import same
from ablation.problems.sandbox.values import encode

from .test_values import PLAIN


@given(PLAIN)
def test_every_value_is_the_same_as_itself(value):
    assert same(encode(value), encode(value))


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (3, 3.0),
        (0.0, -0.0),
        (math.nan, math.nan),
        (math.inf, math.inf),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, 3}, {3, 2, 1}),
        ({1, (2, 3)}, frozenset({(2, 3), 1})),
        ({1: "a"}, {1.0: "a"}),
        ({frozenset({1, 2}): [1]}, {frozenset({2, 1}): [1.0]}),
        (10**400, 10**400),
        ({2**53}, {float(2**53)}),
    ],
)
def test_the_same(expected, found):
    assert same(encode(expected), encode(found))


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (1, True),
        (0, False),
        (True, 1),
        (None, False),
        (1, "1"),
        ("a", b"a"),
        ([1, 2], (1, 2)),
        ([1, 2], [1, 2, 3]),
        ([1, 2], [2, 1]),
        ({1, 2}, [1, 2]),
        ({1}, {True}),
        ({1}, {1, 2}),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": 1, "b": None}),
        ({1: "a"}, {"1": "a"}),
        ("a", "a "),
        (0.3, 0.1 + 0.2),
        (10**16 + 1, 1e16),
        (10**400, math.inf),
        (math.nan, 0.0),
        ({}, set()),
        ([], {}),
        (1.0, 1 + 0j),
        ({frozenset({1, 2})}, {frozenset({1, 3})}),
        ({("a", "b")}, {("ab", "")}),
    ],
)
def test_not_the_same(expected, found):
    assert not same(encode(expected), encode(found))


@pytest.mark.parametrize(
    ("expected", "found", "answer"),
    [
        (0.3, 0.1 + 0.2, True),
        (1e6, 1e6 + 0.5, True),  # relative above 1
        (1e6, 1e6 + 2.0, False),
        (1e-9, 5e-7, True),  # absolute below
        (1.0, 1, True),
        (1.0, 1 + 2e-6, False),
        (1, 1 + 1e-9, False),  # an expected int stays exact
        ([1.0, {"a": 2.0}], [1 + 1e-7, {"a": 2 - 1e-7}], True),
        (1 + 1j, 1 + 1.0000001j, True),
        ({1.0}, {1 + 1e-9}, False),  # members of sets stay exact
        (math.inf, 1e308, False),
        (1.0, math.nan, False),
        (1e308, -1e308, False),
        (1.0, 10**400, False),
        (1.0, True, False),
    ],
)
def test_tolerance_of_a_millionth(expected, found, answer):
    assert same(encode(expected), encode(found), 1e-6) is answer


@pytest.mark.parametrize(
    "found", [{"$eval": "1"}, {"$int": None}, {"$dict": [1]}, {"$complex": 5}, {"$set": 1}, {"$int": "0x" + "f" * 9}]
)
def test_a_malformed_value_is_not_the_same(found):
    assert not same([1], [found])
    assert not same(1, found)


def test_a_value_made_to_be_slow_is_not():
    began = time.perf_counter()
    alike = [i * (2**61 - 1) for i in range(20_000)]  # as Python numbers all have the hash 0
    assert not same({"$set": [1]}, {"$set": alike})
    nested = "\\" * 1000
    for _ in range(60):
        nested = {"$frozenset": [nested, "'\""]}  # a text of a text of a text would double each time
    assert same({"$set": [nested]}, {"$set": [nested]})
    assert time.perf_counter() - began < 5
