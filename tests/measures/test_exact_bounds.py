from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from ablation.measures.exact_bounds import agreeing_clusters, clopper_pearson, wilson


def test_none_of_fifty():
    """Case I01: 1 - 0.025^(1/50) = 0.0711."""
    assert clopper_pearson(0, 50, 0.95) == pytest.approx((0, 1 - 0.025 ** (1 / 50)))
    assert round(clopper_pearson(0, 50, 0.95)[1], 3) == 0.071
    assert clopper_pearson(50, 50, 0.95) == pytest.approx((0.025 ** (1 / 50), 1))


@given(trials=st.integers(1, 400), share=st.floats(0, 1), level=st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_both_are_scipys(trials, share, level):
    successes = round(share * trials)
    exact = binomtest(successes, trials).proportion_ci(level, "exact")
    assert clopper_pearson(successes, trials, level) == pytest.approx((exact.low, exact.high), abs=1e-9)
    score = binomtest(successes, trials).proportion_ci(level, "wilson")
    found = wilson(successes / trials, trials, norm.ppf((1 + level) / 2))
    assert found == pytest.approx((score.low, score.high), abs=1e-9)


def test_the_exact_bound_covers_at_least_at_its_level():
    """Summed over all outcomes, not simulated: 50 trials at every share."""
    for share in (0.001, 0.02, 0.1, 0.35, 0.5):
        covered = sum(
            comb(50, x) * share**x * (1 - share) ** (50 - x)
            for x in range(51)
            if clopper_pearson(x, 50, 0.9)[0] <= share <= clopper_pearson(x, 50, 0.9)[1]
        )
        assert covered >= 0.9


def test_agreeing_clusters():
    """50 cells that all changed by 0, each from -1 to 1: the mean is within 0.0711 of 0. All at 1 of 0 to 1: 0.9289 to 1."""
    other = 1 - 0.025 ** (1 / 50)
    assert agreeing_clusters(0.0, 50, 0.95, -1.0, 1.0) == pytest.approx((-other, other))
    assert agreeing_clusters(1.0, 50, 0.95, 0.0, 1.0) == pytest.approx((1 - other, 1))
