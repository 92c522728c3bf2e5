import pytest

from .worked import MASKED, WHOLE, A, weigh


def test_the_cap_divides_whatever_was_sampled():
    assert weigh("dr_grpo", WHOLE) == pytest.approx(A * 100 / 200)
    assert weigh("dr_grpo", MASKED) == pytest.approx(A * 100 / 200 * [1, 1, 0, 1, 1])
