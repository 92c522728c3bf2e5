from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from ablation.measures.compare import correct_rate, rates
from ablation.measures.rates import RATES, effective_rollouts, rate
from ablation.plan.model import Statistics

from .build import many, outcomes

FEW = Statistics(min_clusters=2)


def test_pooled_and_mean_of_clusters():
    """Case I06: 8 of 8 and 0 of 2, 6 of them missing: 0.8 pooled, 0.5 as a mean of means."""
    one = outcomes([("a", "low", i, 1, 5, 9) for i in range(8)] + [("b", "low", i, 0, 5, 9) for i in range(2)])
    pooled, means = (correct_rate(one, Statistics(min_clusters=2, estimand=name)) for name in ("pooled", "mean_of_clusters"))
    assert (pooled.value, pooled.estimand, pooled.missing) == (Fraction(4, 5), "pooled", 6)
    assert (means.value, means.estimand, means.missing) == (Fraction(1, 2), "mean_of_clusters", 6)
    assert pooled.low < 0.8 < pooled.high and means.low < 0.5 < means.high


def test_none_is_no_certainty():
    """Case I01: 0 of 50 cells of one rollout each is 0 to 0.071 at 95%, and there is no interval."""
    found = rate(np.zeros(50), np.ones(50), Statistics(level=0.95))
    assert (found.value, found.low, found.high, found.reason, found.clusters) == (0, None, None, "degenerate", 50)
    assert found.bound == pytest.approx((0, 0.0711), abs=5e-5)
    assert rate(np.ones(50) * 6, np.ones(50) * 6, Statistics()).bound == pytest.approx((0.05 ** (1 / 50), 1))


def test_a_single_cluster_has_no_interval_and_a_bound_that_says_so():
    found = rate(np.array([0.0]), np.array([8.0]), Statistics(few_clusters="t"))
    assert (found.low, found.reason) == (None, "few_clusters")
    assert found.bound == pytest.approx((0, 0.95))
    assert rate(np.array([3.0]), np.array([8.0]), Statistics(few_clusters="t")).bound is None


def test_few_clusters():
    """Case I03."""
    counts, sizes = np.array([2.0, 0, 1, 2]), np.full(4, 2.0)
    assert rate(counts, sizes, Statistics()).reason == "few_clusters"
    assert rate(counts, sizes, Statistics(few_clusters="t")).method == "wilson"


def test_independent_rollouts_are_worth_themselves():
    """One rollout a cluster: v = K / (K - 1) p (1 - p) / K, so K - 1 are left of K. Wilson's with t(0.95; 39) for z."""
    counts, sizes = np.repeat([1.0, 0.0], [12, 28]), np.ones(40)
    trials = effective_rollouts(counts, sizes, 0.3, "pooled")
    assert trials == pytest.approx(39)
    found = rate(counts, sizes, Statistics())
    worth = 39 * (1.644854 / t.ppf(0.95, 39)) ** 2
    p = 0.3
    low = (p + 1.644854**2 / 2 / worth - 1.644854 * np.sqrt(p * (1 - p) / worth + 1.644854**2 / 4 / worth**2)) / (
        1 + 1.644854**2 / worth
    )
    assert found.low == pytest.approx(low, rel=1e-6)
    assert abs(found.low - binomtest(12, 40).proportion_ci(0.9, "wilson").low) < 0.006


def test_bunched_rollouts_are_worth_less_and_spread_ones_never_more():
    together = effective_rollouts(np.repeat([6.0, 0.0], 10), np.full(20, 6.0), 0.5, "pooled")
    assert together == pytest.approx(19)
    assert effective_rollouts(np.full(20, 3.0), np.full(20, 6.0), 0.5, "pooled") == 120


@given(seed=st.integers(0, 2**32 - 1), estimand=st.sampled_from(["pooled", "mean_of_clusters"]))
@settings(max_examples=25, deadline=None)
def test_properties(seed, estimand):
    """Any order of rows; inside 0 to 1; what is not counted has the mirrored interval; equal clusters have one estimand."""
    rules, one = Statistics(estimand=estimand), many(seed % 1000, cells=14, rollouts=3)
    found = rates(one, rules)
    assert set(found) == set(RATES)
    assert found == rates(one.take(np.random.default_rng(seed).permutation(len(one))), rules)
    assert found["correct"] == found["correct_rate"]
    counts = np.bincount(np.unique(one.cell, return_inverse=True)[1], weights=one.correct)
    own, rest = rate(counts, np.full(14, 3.0), rules), rate(3 - counts, np.full(14, 3.0), rules)
    if own.reason is None:
        assert 0 <= own.low <= own.value <= own.high <= 1
        assert (1 - rest.high, 1 - rest.low) == pytest.approx((own.low, own.high))
        other = rate(counts, np.full(14, 3.0), Statistics())
        assert (other.value, other.low) == (own.value, pytest.approx(own.low))


def test_only_what_is_named():
    assert list(rates(many(1), Statistics(), names=("looping",))) == ["looping"]
    assert rates(many(1), Statistics(), names=("logprob",)) == {}
