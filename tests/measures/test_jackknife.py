import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from ablation.measures.jackknife import jackknife, jackknife_interval


def mean(sums):
    return sums[:, 0] / sums[:, 1]


def columns(values):
    return np.stack([values, np.ones(len(values))], axis=1)


def test_of_a_mean_it_is_the_t_interval_on_the_clusters():
    values = np.random.default_rng(0).normal(3, 2, 7)
    expected = ttest_1samp(values, 0).confidence_interval(0.9)
    assert jackknife_interval(columns(values), mean, 0.9, log=False) == pytest.approx((expected.low, expected.high))


def test_by_hand():
    """1, 2, 6: mean 3, sd sqrt(7), error sqrt(7/3), t(0.95; 2) = 2.919986."""
    found = jackknife(columns(np.array([1.0, 2.0, 6.0])), mean, log=False)
    assert found == pytest.approx((3, np.sqrt(7 / 3), 2))
    low, high = jackknife_interval(columns(np.array([1.0, 2.0, 6.0])), mean, 0.9, log=False)
    assert (high - low) / 2 == pytest.approx(2.919986 * np.sqrt(7 / 3), rel=1e-6)


def test_a_ratio_is_positive_and_mirrored():
    data = np.array([[30.0, 1], [10, 2], [4, 4], [2, 7]])
    low, high = jackknife_interval(data, mean, 0.9, log=True)
    back = jackknife_interval(data[:, ::-1], mean, 0.9, log=True)
    assert 0 < low < 46 / 14 < high
    assert back == pytest.approx((1 / high, 1 / low))


def test_one_cluster_has_none_and_neither_has_what_is_undefined():
    assert jackknife_interval(columns(np.array([1.0])), mean, 0.9, log=False) is None
    lonely = np.array([[5.0, 1], [5, 0], [5, 0]])  # without the first cluster nothing is left to divide by
    assert jackknife(lonely, mean, log=True) is None


@pytest.mark.parametrize("clusters", [3, 5])
def test_it_covers_at_its_level_with_few_clusters(clusters):
    """Case I03. 4,000 samples: the standard error of the coverage is 0.5 points. The percentile bootstrap of 5 covers about 0.77."""
    rng = np.random.default_rng(clusters)
    data = rng.normal(1, 1, (4000, clusters))
    ends = np.array([jackknife_interval(columns(one), mean, 0.9, log=False) for one in data])
    covered = ((ends[:, 0] <= 1) & (ends[:, 1] >= 1)).mean()
    assert 0.885 <= covered <= 0.915
    half = t.ppf(0.95, clusters - 1) * data[0].std(ddof=1) / np.sqrt(clusters)
    assert (ends[0, 1] - ends[0, 0]) / 2 == pytest.approx(half)
