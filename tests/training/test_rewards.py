from types import SimpleNamespace

import numpy as np
import pytest

from ablation.plan.arms import Reward
from ablation.training.rewards import reference_lengths, rewards


def test_reference_is_the_mean_over_clean_rollouts_of_the_cell_only():
    cells = ["a", "a", "a", "b"]
    found = reference_lengths(cells, np.array([True, False, True, False]), np.array([10, 999, 20, 5]))
    assert found == {"a": 15.0}  # b has no clean rollout


def outcomes(clean, length, looping=None, truncated=None):
    none = [False] * len(clean)
    columns = {"clean": clean, "thinking_length": length, "looping": looping or none, "truncated": truncated or none}
    return SimpleNamespace(**{name: np.array(values) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (100, 1.0),  # as long as the reference
        (50, 1.15),  # half: 1 + 0.3 * 0.5
        (0, 1.3),  # nothing: the clip's upper end
        (150, 0.85),
        (200, 0.7),
        (900, 0.7),  # clipped at twice the reference
    ],
)
def test_length_moves_a_clean_reward_by_up_to_three_tenths(length, expected):
    found = rewards(["a"], outcomes([True], [length]), {"a": 100.0}, Reward())
    assert found == pytest.approx([expected], abs=1e-15)


def test_not_clean_is_zero_and_no_reference_is_one():
    found = rewards(["a", "b", "c"], outcomes([False, True, True], [1, 1, 1]), {"a": 5.0, "c": 0.0}, Reward())
    assert found.tolist() == [0.0, 1.0, 1.0]


def test_penalties_are_taken_from_looping_and_truncated_rollouts():
    own = outcomes([True, False, False, False], [1] * 4, looping=[False, True, False, True], truncated=[False, False, True, True])
    found = rewards(["a"] * 4, own, {}, Reward(loop_penalty=0.25), truncation_penalty=0.5)
    assert found.tolist() == [1.0, -0.25, -0.5, -0.75]


def test_a_reward_of_nothing_is_no_negative_zero():
    found = rewards(["a"], outcomes([False], [1], looping=[True]), {}, Reward())
    assert not np.signbit(found).any()
