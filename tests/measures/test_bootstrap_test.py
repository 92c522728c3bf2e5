import numpy as np
import pytest

from ablation.measures.bootstrap import resample, tail
from ablation.measures.bootstrap_test import bootstrap_test
from ablation.measures.jackknife import jackknife
from ablation.measures.sign_test import sign_test
from ablation.measures.t_test import t_test
from ablation.plan.model import Statistics


def mean(sums):
    return sums[:, 0] / sums[:, 1]


def columns(values):
    return np.stack([values, np.ones(len(values))], axis=1)


@pytest.mark.parametrize("method", ["percentile", "expanded"])
@pytest.mark.parametrize("seed", range(4))
def test_a_bootstrap_test_rejects_where_its_interval_does(method, seed):
    """p is at most alpha exactly where the interval of 1 - 2 alpha ends above 0, but for one draw and its interpolation."""
    values = np.random.default_rng(seed).normal(0.2, 1, 15)
    draws = resample(columns(values), mean, Statistics(resamples=4999))
    p = bootstrap_test(draws, 0.0, 15, method, "greater")
    for alpha, rejected in ((p * 1.03, True), (p * 0.97, False)):
        assert (np.quantile(draws, tail(1 - 2 * alpha, 15, method)) > 0) == rejected
    assert bootstrap_test(-draws, 0.0, 15, method, "less") == p
    assert bootstrap_test(draws, 0.0, 15, method, "two_sided") == min(1, 2 * min(p, bootstrap_test(draws, 0, 15, method, "less")))


def test_a_bootstrap_test_on_nothing():
    assert bootstrap_test(np.zeros(99), 0.0, 12, "expanded", "greater") == 1.0
    assert bootstrap_test(np.full(99, 2.0), 0.0, 12, "expanded", "greater") is None
    assert bootstrap_test(np.array([1.0, np.nan]), 0.0, 12, "expanded", "greater") is None
    assert bootstrap_test(np.full(99, 2.0) + np.arange(99) / 99, 0.0, 12, "percentile", "greater") == 0.01


def test_how_often_they_are_wrong():
    """No difference, 24 skewed clusters, 3,000 times: at most 5% false claims, give or take 3 * 0.4 points. The plain percentile
    test is a little above it, which is why the expanded one exists."""
    rng = np.random.default_rng(0)
    p = {"expanded": [], "t": [], "sign": []}
    for _ in range(3000):
        values = rng.exponential(1, 24) - rng.exponential(1, 24)
        draws = resample(columns(values), mean, Statistics(resamples=499))
        p["expanded"].append(bootstrap_test(draws, 0.0, 24, "expanded", "two_sided"))
        p["t"].append(t_test(jackknife(columns(values), mean, log=False), "two_sided"))
        p["sign"].append(sign_test(values, "two_sided"))
    wrong = {name: float((np.array(values) <= 0.05).mean()) for name, values in p.items()}
    assert all(share <= 0.062 for share in wrong.values()), wrong
    assert wrong["t"] >= 0.038 and wrong["expanded"] >= 0.038 and wrong["sign"] >= 0.01
