import numpy as np
import pytest

from ablation.plan.arms import Arm, KLAnchor, Reward
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


def weigh(arm, reference=None, change=None):
    own = outcomes(STAGE, PROBLEMS, Loops())
    return weigh_update(arm, STAGE, own, reward=Reward(), reference=reference or {}, s0=10.0, logprob_change=lambda: change or [])


def test_from_rollouts_to_weights_by_hand():
    found = weigh(Arm(weighting="rollout"))  # rewards 1, 0, 0: advantages 2/3, -1/3, -1/3
    assert found.rewards_R.tolist() == [1.0, 0.0, 0.0]
    first, second, third = found.weights.tokens
    assert first == pytest.approx([2 / 3 * 10 / 4] * 4 + [0, 0])
    assert second == pytest.approx([-1 / 3 * 10 / 2] * 2 + [0, 0])
    assert third == pytest.approx([-1 / 3 * 10 / 12] * 12)


def test_a_short_right_answer_is_worth_more_than_the_reference():
    assert weigh(Arm(weighting="rollout"), {"p@low": 6.0}).rewards_R.tolist() == [1.15, 0.0, 0.0]  # 3 of 6: half saved


def test_logprobs_under_the_start_are_asked_for_only_by_an_anchor():
    asked = []
    own = outcomes(STAGE, PROBLEMS, Loops())
    change = [np.full(6, 0.2), np.full(4, 0.2), np.full(12, 0.2)]

    def logprob_change():
        asked.append(True)
        return change

    for arm in (Arm(weighting="rollout"), Arm(weighting="rollout", kl=KLAnchor(beta=0.5))):
        found = weigh_update(arm, STAGE, own, reward=Reward(), reference={}, s0=10.0, logprob_change=logprob_change)
    assert len(asked) == 1
    assert found.weights.kl[0] == pytest.approx([-0.1] * 4 + [0, 0])
