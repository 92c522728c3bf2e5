import pytest

from .worked import MASKED, WHOLE, A, weigh


def test_mean_over_all_tokens():  # 120 tokens, times R * s0 = 5 * 100
    assert weigh("dapo", WHOLE) == pytest.approx(A / 120 * 5 * 100)


def test_masked_tokens_leave_the_divisor():  # 60 tokens of 4 rollouts
    assert weigh("dapo", MASKED) == pytest.approx(A / 60 * 4 * 100 * [1, 1, 0, 1, 1])
