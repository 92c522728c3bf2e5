import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ablation.measures.sign_test import sign_test

SIDES = ("greater", "less", "two_sided")


@given(st.lists(st.integers(-2, 2), min_size=0, max_size=40), st.sampled_from(SIDES))
def test_sign_test_is_scipys_binomial_test(signs, side):
    signs = np.array(signs, dtype=int)
    up, differ = int((signs > 0).sum()), int((signs != 0).sum())
    expected = stats.binomtest(up, differ, alternative=side.replace("_", "-")).pvalue if differ else 1.0
    assert sign_test(signs, side) == pytest.approx(expected)
