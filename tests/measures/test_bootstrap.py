from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import bootstrap, norm, t

from ablation.measures.bootstrap import estimate, tail
from ablation.measures.estimate import METHODS, REASONS
from ablation.measures.tokens_per_correct import tokens_per_correct_ratio
from ablation.plan.model import Statistics

from .build import many, outcomes

SETTINGS = Statistics(seed=11)


def ratio(sums):
    return (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])


def columns(seed):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(low, high, 58) for low, high in ((100, 5000), (1, 7), (100, 5000), (1, 7))], axis=1).astype(
        float
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_scipys_within_monte_carlo_error(seed):
    """A percentile's Monte Carlo standard error is sqrt(q (1 - q) / R) / density; the density is read off a third, larger
    bootstrap. Both intervals have it, so they may differ by 4 * sqrt(2) of it."""
    data = columns(seed)
    ours = estimate(1.0, data, ratio, SETTINGS)

    def statistic(a, b, c, d, axis=-1):
        return (a.sum(axis) / b.sum(axis)) / (c.sum(axis) / d.sum(axis))

    def scipys(resamples, seed):
        return bootstrap(
            tuple(data.T), statistic, paired=True, n_resamples=resamples, confidence_level=0.9, method="percentile", rng=seed
        )

    interval, draws = scipys(10_000, 1).confidence_interval, scipys(40_000, 2).bootstrap_distribution
    for q, one, other in ((0.05, ours.low, interval.low), (0.95, ours.high, interval.high)):
        density = 0.02 / np.subtract(*np.quantile(draws, [q + 0.01, q - 0.01]))
        error = np.sqrt(q * (1 - q) / 10_000) / density
        assert abs(one - other) < 4 * np.sqrt(2) * error


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    data = columns(0)
    first = estimate(1.0, data, ratio, SETTINGS)
    assert first == estimate(1.0, data.copy(), ratio, SETTINGS)
    assert first.low != estimate(1.0, data, ratio, Statistics(seed=12)).low
    assert (first.level, first.clusters, first.reason) == (0.9, 58, None)


def test_the_interval_covers_at_its_level():
    """200 samples of 40 clusters from a known ratio: a 90% interval misses it in about 20; at most 38 has probability > 0.9999
    for true coverage of 0.90, and the percentile method is a little short of it."""
    rng = np.random.default_rng(5)
    misses = 0
    for _ in range(200):
        base = rng.lognormal(0, 0.5, 40)
        data = np.stack([3 * base * rng.lognormal(0, 0.3, 40), base], axis=1)
        true = 3 * np.exp(0.3**2 / 2)
        found = estimate(1.0, data, lambda s: s[:, 0] / s[:, 1], Statistics(resamples=1000))
        misses += not found.low <= true <= found.high
    assert 8 <= misses <= 38


def test_a_single_cluster_and_too_few_have_no_interval():
    for clusters in (1, 9):
        found = estimate(1.5, columns(0)[:clusters], ratio, SETTINGS)
        assert (found.value, found.low, found.high, found.reason, found.clusters) == (1.5, None, None, "few_clusters", clusters)
    assert estimate(1.5, columns(0)[:10], ratio, SETTINGS).reason is None


def test_equal_clusters_are_degenerate_not_certain():
    """Case I01: an interval of width zero is no certainty."""
    found = estimate(1.0, np.tile(columns(0)[:1], (20, 1)), ratio, SETTINGS)
    assert (found.low, found.reason) == (None, "degenerate")


def test_a_resample_without_a_correct_answer_is_named():
    data = columns(0)[:12]
    data[1:, 1] = 0
    assert estimate(1.0, data, ratio, SETTINGS).reason == "undefined_in_resamples"


def test_json_has_the_old_fields_and_no_nan():
    found = estimate(Fraction(1, 3), columns(0)[:5], ratio, SETTINGS)
    assert found.reason in REASONS
    old = {"value": 1 / 3, "low": None, "high": None, "level": None, "clusters": 5, "reason": "few_clusters"}
    assert found.as_json() == old | {"method": None, "estimand": None, "bound": None, "missing": 0}


def test_every_method_has_its_words():
    for method in ("percentile", "expanded", "t"):
        found = estimate(1.0, columns(0), ratio, Statistics(method=method))
        assert found.method == method and method in METHODS and found.reason is None


def test_expanded_takes_quantiles_further_out():
    """Hesterberg 2015, table 3: for 20 clusters the nominal 2.5% becomes 1.60% (his 0.95 interval for n = 20)."""
    assert tail(0.95, 20, "expanded") == pytest.approx(norm.cdf(np.sqrt(20 / 19) * t.ppf(0.025, 19)), rel=1e-12)
    assert tail(0.95, 20, "expanded") == pytest.approx(0.0159, abs=2e-4)
    assert tail(0.95, 20, "percentile") == pytest.approx(0.025)
    wide, narrow = (estimate(1.0, columns(0)[:20], ratio, Statistics(method=one)) for one in ("expanded", "percentile"))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_few_clusters_have_a_t_interval_where_the_plan_says_so():
    """Case I03."""
    data = columns(0)[:4]
    found = estimate(1.0, data, ratio, Statistics(few_clusters="t"))
    assert (found.method, found.clusters, found.reason) == ("t", 4, None)
    assert estimate(1.0, data, ratio, SETTINGS).reason == "few_clusters"
    assert estimate(1.0, data[:1], ratio, Statistics(few_clusters="t")).reason == "few_clusters"
    assert estimate(1.0, data[:1], ratio, Statistics(method="t", min_clusters=1)).reason == "few_clusters"


def test_a_cell_is_drawn_with_all_of_its_rollouts():
    """Case I03: with strong cell effects the interval over cells is far wider than one that takes rollouts as independent."""
    subject, reference = many(1), many(2)
    by_cell = tokens_per_correct_ratio(subject, reference, SETTINGS)
    single = [
        outcomes([(f"p{i:04d}", "low", 0, c, 1, t) for i, (c, t) in enumerate(zip(one.correct, one.total_tokens, strict=True))])
        for one in (subject, reference)
    ]
    by_rollout = tokens_per_correct_ratio(*single, SETTINGS)
    assert by_cell.value == by_rollout.value
    assert by_cell.high - by_cell.low > 1.5 * (by_rollout.high - by_rollout.low)
