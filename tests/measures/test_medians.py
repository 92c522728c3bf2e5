import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.measures.medians import median_ratio, resampled_medians
from ablation.plan.model import Statistics


@given(seed=st.integers(0, 2**32 - 1), clusters=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_a_resampled_median_is_numpys_of_the_repeated_rollouts(seed, clusters):
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, clusters, 15)
    values = rng.integers(0, 6, 15) / 4
    counts = rng.multinomial(clusters, [1 / clusters] * clusters, size=20).astype(np.uint16)
    found = resampled_medians(values, cluster, counts)
    for row, median in zip(counts, found, strict=True):
        drawn = np.repeat(values, row[cluster])
        assert (np.isnan(median) and not len(drawn)) or median == np.median(drawn)


def test_blocks_do_not_change_anything(monkeypatch):
    rng = np.random.default_rng(0)
    values, cluster = rng.random(50), np.repeat(np.arange(10), 5)
    counts = rng.multinomial(10, [0.1] * 10, size=37).astype(np.uint16)
    whole = resampled_medians(values, cluster, counts)
    monkeypatch.setattr("ablation.measures.medians._CELLS", 120)
    assert np.array_equal(whole, resampled_medians(values, cluster, counts))


def both(seed, clusters=24, size=6):
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 0.3, clusters)[:, None]
    values = [np.exp(level + rng.normal(shift, 0.4, (clusters, size))).ravel() for shift in (np.log(1.5), 0.0)]
    places = np.repeat(np.arange(clusters), size)
    return tuple(values), (places, places)


def test_the_interval_covers_at_its_level():
    """400 samples of 24 clusters; the true ratio is 1.5. A 90% interval covers it in 348 to 372 of them, give or take 3 * 6."""
    rules = Statistics(resamples=400, method="expanded")
    found = [median_ratio(*both(seed), 24, rules) for seed in range(400)]
    covered = np.mean([one.low <= 1.5 <= one.high for one in found])
    assert 0.86 <= covered <= 0.95


def test_t_falls_back_and_few_clusters_have_none():
    assert median_ratio(*both(1), 24, Statistics(method="t")) == median_ratio(*both(1), 24, Statistics(method="expanded"))
    assert median_ratio(*both(1, 9), 9, Statistics(few_clusters="t")).reason == "few_clusters"


def test_undefined_and_degenerate():
    places = np.arange(12), np.arange(12)
    ones, none = np.ones(12), np.zeros(12)
    assert median_ratio((ones, none), places, 12, Statistics()).reason == "no_reference"
    assert median_ratio((ones, ones), places, 12, Statistics()).reason == "degenerate"
    empty = (np.zeros(0), np.zeros(0, dtype=int))
    assert median_ratio((empty[0], ones), (empty[1], places[1]), 12, Statistics()).reason == "nothing_measured"
    assert median_ratio((ones, empty[0]), (places[0], empty[1]), 12, Statistics()).reason == "no_reference"
    half = (np.array([1.0, 2.0]), np.array([0, 0]))  # eleven of twelve clusters have no value, so some resamples have none
    assert median_ratio((half[0], ones), (half[1], places[1]), 12, Statistics()).reason == "undefined_in_resamples"
    assert median_ratio((ones * 3, ones * 2), places, 12, Statistics()).value == pytest.approx(1.5)
