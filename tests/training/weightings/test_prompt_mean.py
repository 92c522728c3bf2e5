import dataclasses

import numpy as np
import pytest

from .worked import MASKED, WHOLE, A, weigh


def test_mean_over_each_group_then_over_groups():  # 1 / (2 * 90) and 1 / (2 * 30), times R * s0 = 5 * 100
    assert weigh("prompt_mean", WHOLE) == pytest.approx(A * 500 / (2 * np.array([90, 90, 90, 30, 30])))


def test_masked_tokens_leave_the_divisor():
    assert weigh("prompt_mean", MASKED) == pytest.approx(A * 400 / (2 * 30) * [1, 1, 0, 1, 1])


def test_a_group_without_a_rollout_in_the_loss_is_not_counted():
    alone = dataclasses.replace(WHOLE, in_loss_R=np.array([True, True, True, False, False]), advantages_R=A * [1, 1, 1, 0, 0])
    assert weigh("prompt_mean", alone)[:3] == pytest.approx(A[:3] * 300 / 90)


def test_groups_of_one_size_make_it_the_token_weighting():
    even = dataclasses.replace(WHOLE, group_R=np.array([0, 0, 1, 1, 2]), in_loss_R=np.array([True] * 4 + [False]))
    assert weigh("prompt_mean", even)[:4] == pytest.approx(weigh("token", even)[:4])
