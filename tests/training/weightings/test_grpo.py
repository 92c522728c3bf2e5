import pytest

from .worked import WHOLE, A, L, weigh


def test_mean_over_each_response_then_over_responses():  # 1 / (R * L_i), times R * s0 = 5 * 100
    assert weigh("grpo", WHOLE) == pytest.approx(A / (5 * L) * 5 * 100)
