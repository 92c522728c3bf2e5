import pytest

from .worked import MASKED, WHOLE, A, weigh


def test_the_group_s_mean_length_divides():
    assert weigh("token", WHOLE) == pytest.approx(A * 100 / [30, 30, 30, 15, 15])


def test_a_masked_rollout_leaves_the_mean():
    assert weigh("token", MASKED) == pytest.approx([2 / 3 * 100 / 15, -1 / 3 * 100 / 15, 0, 0.5 * 100 / 15, -0.5 * 100 / 15])
