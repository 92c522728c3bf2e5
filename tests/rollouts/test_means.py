import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.rollouts.means import exact_sum, mean


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_the_mean_is_the_exact_mean_rounded_once_in_any_order(values):
    exact = sum(map(Fraction, values)) / len(values)
    found = mean(np.array(values))
    assert abs(Fraction(found) - exact) <= Fraction(np.spacing(abs(float(exact)))) / 2 * Fraction(10001, 10000)
    assert mean(np.array(values[::-1])) == found


@given(st.floats(-50, 0), st.integers(1, 400))
def test_equal_numbers_are_their_mean(value, count):
    assert mean(np.full(count, value)) == value


@pytest.mark.parametrize(("values", "expected"), [([1.0, -np.inf], -np.inf), ([np.inf, -np.inf], np.nan), ([np.nan, 1], np.nan)])
def test_what_is_not_finite_stays_so(values, expected):
    assert np.array_equal(mean(np.array(values)), expected, equal_nan=True)


def test_whole_numbers():
    assert mean(np.array([1, 2, 4])) == 7 / 3


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40))
def test_the_sum_is_exact(values):
    """Any two exponents, zeros of both signs and the smallest numbers there are."""
    assert exact_sum(np.array(values)) == sum(map(Fraction, values), start=Fraction(0))


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=40))
def test_the_mean_is_that_of_two_exactly_rounded_sums(values):
    guess = math.fsum(values) / len(values)
    assert mean(np.array(values)) == guess + math.fsum([*values, *([-guess] * len(values))]) / len(values)
