import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.training.advantages import advantages, group_rows


def one_group(rewards, counted=None, **options):
    rewards = np.array(rewards, dtype=float)
    counted = np.ones(len(rewards), dtype=bool) if counted is None else np.array(counted)
    return advantages({"g": np.arange(len(rewards))}, rewards, counted, **options)


def test_groups_keep_the_order_of_first_appearance():
    groups = group_rows(["b", "a", "b"])
    assert {cell: rows.tolist() for cell, rows in groups.items()} == {"b": [0, 2], "a": [1]}
    assert list(groups) == ["b", "a"]


def test_reward_minus_group_mean():
    found, silent = one_group([1, 0, 0, 1])
    assert found.tolist() == [0.5, -0.5, -0.5, 0.5]
    assert silent == []


def test_equal_rewards_give_exactly_zero():  # eight times 0.3 has a rounded mean that is not 0.3
    found, silent = one_group(np.full(8, 0.3, dtype=np.float32))
    assert found.tolist() == [0.0] * 8
    assert silent == ["g"]


def test_a_single_rollout_gives_zero_and_no_nan():
    found, silent = one_group([0.7])
    assert found.tolist() == [0.0]
    assert silent == ["g"]


def test_rollouts_apart_leave_the_baseline():
    found, _ = one_group([1.0, 0.0, 0.0], counted=[True, True, False])
    assert found.tolist() == [0.5, -0.5, 0.0]


@given(st.lists(st.floats(0, 1.3), min_size=2, max_size=12))
def test_advantages_of_a_group_sum_to_zero(values):
    found, _ = one_group(values)
    assert np.isfinite(found).all()
    assert found.sum() == pytest.approx(0.0, abs=1e-12)


def test_leave_one_out_by_hand():  # the three others of a 1 have the mean 1/3, those of a 0 the mean 2/3
    found, _ = one_group([1, 0, 0, 1], baseline="leave_one_out")
    assert found == pytest.approx([1 - 1 / 3, 0 - 2 / 3, 0 - 2 / 3, 1 - 1 / 3])


def test_seven_equal_rewards_and_one_other_with_leave_one_out():
    found, silent = one_group([0.35] * 7 + [0.95], baseline="leave_one_out", scale="std")
    assert found[7] == pytest.approx(0.6 / np.std([0.35] * 7 + [0.95], ddof=1))  # the others' own spread of 0 divides nothing
    assert found[:7] == pytest.approx([-0.6 / 7 / np.std([0.35] * 7 + [0.95], ddof=1)] * 7)
    assert silent == []


def test_standard_deviation_of_the_group():
    found, _ = one_group([1, 0, 0, 1], scale="std")  # sqrt(4 * 0.25 / 3)
    assert found == pytest.approx(np.array([0.5, -0.5, -0.5, 0.5]) / np.sqrt(1 / 3))


def test_equal_rewards_are_silent_whatever_divides_them():
    for baseline in ("mean", "leave_one_out"):
        found, silent = one_group(np.full(8, 0.3, dtype=np.float32), baseline=baseline, scale="std")
        assert found.tolist() == [0.0] * 8 and silent == ["g"]


def test_no_baseline_is_the_reward_itself():
    found, silent = one_group([1.0, 1.0], baseline="none")
    assert found.tolist() == [1.0, 1.0] and silent == []
    assert one_group([0.0, 0.0], baseline="none")[1] == ["g"]
    assert one_group([0.7], baseline="none")[0].tolist() == [0.7]


def test_a_spread_that_is_too_small_for_a_float_is_no_signal():
    found, silent = one_group([0.0, 5e-200], scale="std")  # the squares are below the smallest float
    assert found.tolist() == [0.0, 0.0] and silent == ["g"]
