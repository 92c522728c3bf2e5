"""Own distributions against scipy's, and numbers from tables."""

import pytest
from scipy import special, stats

from ablation.audit.chance import incomplete_beta, none_of, t_quantile, wilson
from ablation.measures import exact_bounds


@pytest.mark.parametrize("freedom", [1, 2, 5, 23, 57, 347])
@pytest.mark.parametrize("share", [0.05, 0.6, 0.95, 0.975])
def test_t(freedom, share):
    assert t_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-9)


def test_from_tables():
    assert t_quantile(0.95, 57) == pytest.approx(1.6720, abs=1e-4)
    assert none_of(50, 0.95) == pytest.approx(0.0711, abs=1e-4)


@pytest.mark.parametrize(("a", "b", "x"), [(0.5, 0.5, 0.01), (2, 3, 0.4), (28.5, 0.5, 0.99), (9, 0.5, 0.3)])
def test_incomplete_beta(a, b, x):
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-12)


@pytest.mark.parametrize(("share", "trials"), [(0.1, 50), (0.5, 3.7), (0.999, 144), (0.001, 20)])
def test_wilson_is_the_score_interval(share, trials):
    low, high = wilson(share, trials, 1.7)
    assert (low, high) == pytest.approx(exact_bounds.wilson(share, trials, 1.7), rel=1e-12)
    for end in (low, high):
        assert abs(share - end) == pytest.approx(1.7 * (end * (1 - end) / trials) ** 0.5, rel=1e-9)
