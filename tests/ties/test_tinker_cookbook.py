"""What tinker-cookbook would send to Tinker for a group of rollouts is arm C's weights, up to a scale that is one for the group."""

from __future__ import annotations

import numpy as np
import pytest

from ablation.plan.arms import Arm

from .conftest import CELLS, GROUP, REWARDS, S0, Bench

pytestmark = pytest.mark.slow  # imports of seconds
pytest.importorskip("tinker_cookbook", reason="pip install --no-deps -r tests/ties/requirements.txt")


def assembled(bench: Bench, logprobs: list[np.ndarray]) -> list:
    """The cookbook's data of the update, a datum for each rollout, in order."""
    import tinker
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

    def trajectory(row: int) -> Trajectory:
        action = TokensWithLogprobs(tokens=bench.tokens[row].tolist(), maybe_logprobs=logprobs[row].tolist())
        prompt = tinker.ModelInput.from_ints(list(bench.prompt_ids[row]))
        step = Transition(ob=prompt, ac=action, reward=float(bench.rewards[row]), episode_done=True)
        return Trajectory(transitions=[step], final_ob=tinker.ModelInput.empty())

    groups = [
        TrajectoryGroup([trajectory(group * GROUP + index) for index in range(GROUP)], [0.0] * GROUP, [{}] * GROUP)
        for group in range(len(CELLS))
    ]
    data, origin = assemble_training_data(groups, compute_advantages(groups))
    assert [(one["group_idx"], one["traj_idx"]) for one in origin] == [(g, i) for g in range(len(CELLS)) for i in range(GROUP)]
    return data


@pytest.mark.parametrize("tokens", ["response", "thinking"])
def test_token_weights_are_the_cookbooks_advantages_up_to_the_group_scale(bench: Bench, tokens: str):
    logprobs = bench.score(bench.start)
    data = assembled(bench, logprobs)
    ours = bench.weights(Arm(weighting="token", tokens=tokens))
    spans = bench.thinking if tokens == "thinking" else [(0, len(own)) for own in bench.tokens]
    checked = 0
    for group in range(len(CELLS)):
        rows = range(group * GROUP, (group + 1) * GROUP)
        scale = S0 / np.mean([spans[row][1] - spans[row][0] for row in rows])
        for row in rows:
            begin, end = spans[row]
            inputs = {name: value.to_numpy() for name, value in data[row].loss_fn_inputs.items()}
            before = len(bench.prompt_ids[row]) - 1  # its targets are shifted by one, so the prompt has one fewer
            assert inputs["target_tokens"][before:].tolist() == bench.tokens[row].tolist()
            np.testing.assert_allclose(inputs["logprobs"][before:], logprobs[row], rtol=1e-6)
            assert not inputs["advantages"][:before].any()
            theirs = inputs["advantages"][before:]
            # float32 on their side; the cookbook weighs the whole response, arm C only its thinking
            np.testing.assert_allclose(ours[row][begin:end], scale * theirs[begin:end], rtol=1e-5, atol=1e-6 * scale)
            assert not ours[row][:begin].any() and not ours[row][end:].any()
            checked += int(np.count_nonzero(theirs[begin:end]))
    assert REWARDS[3] == [1, 1, 1, 1] and checked > 500
