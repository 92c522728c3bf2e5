from __future__ import annotations

import numpy as np
import pytest

from ablation.plan.arms import Arm, KLAnchor, Training
from ablation.report.arm_words import arm_formula, arm_in_words
from ablation.training.weights import Logprobs, RolloutBatch, token_weights

TRAINING = Training(updates=1, rollouts_per_cell=3, learning_rate=1e-3)
S0 = 50.0
LENGTHS = np.array([4, 6, 10])
BATCH = RolloutBatch(
    cells=["p@low"] * 3,
    rewards_R=np.array([1.0, 0.25, 0.0]),
    truncated_R=np.array([False, False, True]),
    lengths_R=LENGTHS + 2,
    weighted_start_R=np.zeros(3, dtype=int),
    weighted_length_R=LENGTHS,
)
MOVED = [np.full(length + 2, change) for length, change in zip(LENGTHS, (-0.2, 0.1, 0.3), strict=True)]


@pytest.mark.parametrize(
    "arm",
    [
        Arm(weighting="token"),
        Arm(weighting="rollout"),
        Arm(weighting="rollout", finish_push=0.1),
        Arm(weighting="token", kl=KLAnchor(beta=0.05)),
        Arm(weighting="rollout", advantages="positive"),
    ],
)
def test_the_formula_gives_the_weights_that_are_computed(arm):
    """Each formula is evaluated as arithmetic and compared with `token_weights`."""
    advantages = BATCH.rewards_R - BATCH.rewards_R.mean()
    found = token_weights(arm, BATCH, S0, 64, Logprobs(trainer=MOVED, start=[np.zeros_like(one) for one in MOVED]))
    for row, weights in enumerate(found.tokens):
        text = arm_formula(arm).replace("×", "*").replace("−", "-").replace("±", "-" if BATCH.truncated_R[row] else "+")
        names = {"A_i": advantages[row], "L_i": LENGTHS[row], "Lbar_g": LENGTHS.mean(), "s0": S0, "max": max}
        names |= {"logp": MOVED[row][0], "logp_start": 0.0}
        assert eval(text, names) == pytest.approx(weights[0])


def test_every_setting_has_a_sentence():
    plain = arm_in_words(Arm(weighting="rollout"), TRAINING)
    assert len(plain) == 1
    full = Arm(weighting="rollout", truncated="apart", finish_push=0.25, kl=KLAnchor(beta=0.05), learning_rate=2e-3)
    text = " ".join(arm_in_words(full, TRAINING))
    for part in ("Truncated rollouts leave", "0.25 of s0", "0.05 per nat", "learning rate is 0.002, not 0.001"):
        assert part in text
    damped = Arm(weighting="rollout", advantages="positive", kl=KLAnchor(beta=0.05, damp_only=True))
    text = " ".join(arm_in_words(damped, TRAINING))
    assert "can only shrink" in text
    assert "Rollouts below their group's mean reward have no weight" in text
    assert arm_in_words(Arm(weighting="rollout", learning_rate=1e-3), TRAINING) == plain
