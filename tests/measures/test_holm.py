from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.measures.holm import holm


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.06. A test that was not made counts all the same."""
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.02, None]) == [0.04, None]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms())
def test_holm_is_monotone_and_of_no_order(p_values, random):
    """A smaller p is never adjusted to a larger one; it is never below p or above Bonferroni; order of tests does not matter."""
    adjusted = holm(p_values)
    pairs = sorted(zip(p_values, adjusted, strict=True))
    assert all(a[1] <= b[1] for a, b in pairwise(pairs))
    assert all(p <= found <= min(1, len(p_values) * p) + 1e-15 for p, found in pairs)
    order = list(range(len(p_values)))
    random.shuffle(order)
    assert [holm([p_values[i] for i in order])[order.index(i)] for i in range(len(p_values))] == adjusted
    lower = [p_values[0] / 2, *p_values[1:]]
    assert holm(lower)[0] <= adjusted[0]
