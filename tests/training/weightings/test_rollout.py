import pytest

from .worked import MASKED, WHOLE, A, L, weigh


def test_totals_are_the_advantages():
    assert weigh("rollout", WHOLE) * L == pytest.approx(100 * A)


def test_a_masked_rollout_changes_no_other():
    assert weigh("rollout", MASKED) == pytest.approx(A * 100 / L * [1, 1, 0, 1, 1])
