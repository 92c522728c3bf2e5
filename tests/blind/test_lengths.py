import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ablation.blind.leaks import hypergeometric_two_sided
from ablation.blind.lengths import binomial_two_sided, correlation, model_and_length, thirds


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=30))
def test_correlation_is_numpys(rows):
    first, second = [float(a) for a, _ in rows], [float(b) for _, b in rows]
    found = correlation(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(np.corrcoef(first, second)[0, 1], abs=1e-9)


def test_model_and_length_by_hand():
    # subject 1, 2; reference 3, 4: means 1.5 and 3.5, deviations of (1, 2, 3, 4): sum of products -2, norms 1 and sqrt(5)
    found = model_and_length([1, 2], [3, 4])
    assert found["correlation"] == pytest.approx(-2 / 5**0.5)
    assert (found["subject_longer"], found["reference_longer"], found["equal"]) == (0, 2, 0)


def test_thirds_by_rank():
    assert thirds([50, 10, 40, 20, 30, 60]) == ["long", "short", "middle", "short", "middle", "long"]
    assert thirds([5, 5, 5, 5]) == ["short", "short", "middle", "long"]
    assert thirds([7]) == ["short"]


@pytest.mark.parametrize(("hits", "trials"), [(0, 6), (1, 6), (3, 6), (8, 8), (5, 24), (12, 24)])
def test_binomial_is_scipys(hits, trials):
    assert binomial_two_sided(hits, trials) == pytest.approx(stats.binomtest(hits, trials).pvalue)


@pytest.mark.parametrize(("hits", "drawn", "marked", "total"), [(10, 10, 10, 20), (5, 10, 10, 20), (2, 6, 5, 13), (0, 3, 3, 7)])
def test_hypergeometric_is_scipys_fisher(hits, drawn, marked, total):
    table = [[hits, marked - hits], [drawn - hits, total - marked - drawn + hits]]
    assert hypergeometric_two_sided(hits, drawn, marked, total) == pytest.approx(stats.fisher_exact(table).pvalue)
