import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ablation.measures.jackknife import Jackknife, jackknife
from ablation.measures.t_test import t_test, welch

SIDES = ("greater", "less", "two_sided")


def mean(sums):
    return sums[:, 0] / sums[:, 1]


def columns(values):
    return np.stack([values, np.ones(len(values))], axis=1)


@pytest.mark.parametrize("side", SIDES)
def test_t_tests_are_scipys(side):
    rng = np.random.default_rng(1)
    values, other = rng.normal(0.4, 1, 12), rng.normal(0, 3, 5)
    found = t_test(jackknife(columns(values), mean, log=False), side)
    assert found == pytest.approx(stats.ttest_1samp(values, 0, alternative=side.replace("_", "-")).pvalue)
    expected = stats.ttest_ind(values, other, equal_var=False, alternative=side.replace("_", "-"))
    one = welch(values.tolist(), other.tolist())
    assert one.freedom == pytest.approx(expected.df)
    assert t_test(one, side) == pytest.approx(expected.pvalue)


def test_without_spread_there_is_no_p():
    assert welch([2.0, 2.0], [1.0, 1.0]) is None
    assert t_test(Jackknife(0.5, 0.0, 9), "greater") is None
    assert t_test(Jackknife(0.0, 0.0, 9), "greater") == 1.0


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_sides_are_two_of_one(seed):
    values = np.random.default_rng(seed).normal(0, 1, 11)
    found = {side: t_test(jackknife(columns(values), mean, log=False), side) for side in SIDES}
    assert found["greater"] + found["less"] == pytest.approx(1)
    assert found["two_sided"] == pytest.approx(2 * min(found["greater"], found["less"]))
