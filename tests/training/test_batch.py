from pathlib import Path

import numpy as np
import pytest

from ablation.plan.arms import Arm, ArmReward, Clip, KLAnchor
from ablation.plan.load import load_plan
from ablation.plan.model import Loops
from ablation.problems.problem import Problem
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.rollouts.store import stage_of
from ablation.training.batch import weigh_update

OPEN, CLOSE, END = 900, 901, 902
INFO = StageInfo("d" * 64, "main", "N", "update", 1, "a" * 64, OPEN, CLOSE, (END,), 12)
PROBLEMS = {"p": Problem("p", "sum", "1+1=", "integer", "2")}


def rollout(index, ids, answer, reason="stop"):
    floats = [-0.5] * len(ids)
    return Rollout(
        *("main", "N", "update", 1, "p", "low", "sum", index, 7 + index, "b" * 64, 3, True),
        token_ids=ids,
        logprobs=floats,
        top_entropy=[0.1] * len(ids),
        top_mass=[1.0] * len(ids),
        finish_reason=reason,
        thinking_text="",
        answer_text=answer,
    )


RIGHT = rollout(0, [5, 6, 7, CLOSE, 2, END], "2")  # 3 thinking tokens and the closing one
WRONG = rollout(1, [5, CLOSE, 3, END], "3")
CUT = rollout(2, list(range(12)), "", "length")
STAGE = stage_of(INFO, [RIGHT, WRONG, CUT])


PLAN = load_plan(Path(__file__).parents[2] / "plans" / "quickstart.yaml").plan


def weigh(arm, reference=None, trainer=None, start=None):
    own = outcomes(STAGE, PROBLEMS, Loops())
    return weigh_update(
        arm,
        PLAN,
        STAGE,
        own,
        reference=reference or {},
        s0=10.0,
        trainer_logprobs=trainer or pytest.fail,
        start_logprobs=start or pytest.fail,
    )


def test_from_rollouts_to_weights_by_hand():
    found = weigh(Arm(weighting="rollout"))  # rewards 1, 0, 0: advantages 2/3, -1/3, -1/3
    assert found.rewards_R.tolist() == [1.0, 0.0, 0.0]
    first, second, third = found.weights.tokens
    assert first == pytest.approx([2 / 3 * 10 / 4] * 4 + [0, 0])
    assert second == pytest.approx([-1 / 3 * 10 / 2] * 2 + [0, 0])
    assert third == pytest.approx([-1 / 3 * 10 / 12] * 12)


def test_a_short_right_answer_is_worth_more_than_the_reference():
    assert weigh(Arm(weighting="rollout"), {"p@low": 6.0}).rewards_R.tolist() == [1.15, 0.0, 0.0]  # 3 of 6: half saved


def test_logprobs_are_asked_for_only_by_an_arm_that_needs_them():  # `pytest.fail` is what the others would call
    trainer = [np.full(6, -0.3), np.full(4, -0.3), np.full(12, -0.3)]
    start = [np.full(6, -0.5), np.full(4, -0.5), np.full(12, -0.5)]
    found = weigh(Arm(weighting="rollout", kl=KLAnchor(beta=0.5)), None, lambda: trainer, lambda: start)
    assert found.weights.kl[0] == pytest.approx([-0.1] * 4 + [0, 0])
    found = weigh(Arm(weighting="rollout", clip=Clip(low=0.5, high=0.2)), None, lambda: trainer)  # ratio exp(0.2) = 1.221
    assert found.weights.clipped_R.tolist() == [4, 0, 0]
    weigh(Arm(weighting="rollout"))


def test_all_that_was_sampled_can_carry_weight():
    found = weigh(Arm(weighting="dr_grpo", tokens="response"))
    assert found.weights.tokens[0] == pytest.approx([2 / 3 * 10 / PLAN.sampling.max_tokens] * 6)  # the end token, too


def test_an_arm_s_own_reward_terms_and_truncation_penalty():
    arm = Arm(weighting="rollout", truncated="penalize", truncation_penalty=0.5, reward=ArmReward(length_bonus=0.0))
    found = weigh(arm, {"p@low": 6.0})
    assert found.rewards_R.tolist() == [1.0, 0.0, -0.5]
    assert found.weights.advantages_R == pytest.approx([5 / 6, -1 / 6, -4 / 6])
