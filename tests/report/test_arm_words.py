from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from ablation.plan.arms import Adam, Arm, ArmAdam, ArmReward, Clip, KLAnchor, Reward, Training
from ablation.plan.external import External
from ablation.plan.weightings import WEIGHTINGS
from ablation.report.arm_words import advantage_formula, arm_formula, arm_in_words, optimizer_in_words, reward_in_words, symbols
from ablation.training.weights import Logprobs, RolloutBatch, token_weights

TRAINING = Training(updates=1, rollouts_per_cell=3, learning_rate=1e-3)
S0, CAP = 50.0, 64
REWARDS = np.array([1.0, 0.25, 0.0, 0.5, 1.0])
LENGTHS = np.array([4, 6, 10, 5, 15])
GROUPS = [[0, 1, 2], [3, 4]]
ENTROPY = [np.full(length + 2, value) for length, value in zip(LENGTHS, (0.9, 0.1, 0.2, 0.95, 0.3), strict=True)]
BATCH = RolloutBatch(
    cells=["p@low"] * 3 + ["q@low"] * 2,
    rewards_R=REWARDS,
    truncated_R=np.array([False, False, True, False, False]),
    lengths_R=LENGTHS + 2,
    weighted_start_R=np.zeros(5, dtype=int),
    weighted_length_R=LENGTHS,
    sampler_logprobs=[np.full(length + 2, -1.0) for length in LENGTHS],
    entropy=ENTROPY,
)
MOVED = (0.4, 0.1, -0.5, -0.1, 0.3)  # nats; the start and the sampler give every token -1
MOVED_BATCH = Logprobs(
    trainer=[np.full(length + 2, change - 1) for length, change in zip(LENGTHS, MOVED, strict=True)],
    start=[np.full(length + 2, -1.0) for length in LENGTHS],
)
PARTS = [
    {},
    {"finish_push": 0.1},
    {"kl": KLAnchor(beta=0.05)},
    {"kl": KLAnchor(beta=0.05, estimator="k3", unit="advantage")},
    {"advantages": "positive"},
    {"advantages": "positive", "kl": KLAnchor(beta=5.0, damp_only=True)},
    {"advantages": "positive", "kl": KLAnchor(beta=5.0, damp_only=True, estimator="k3", unit="advantage")},
    {"baseline": "leave_one_out"},
    {"baseline": "none"},
    {"scale": "std"},
    {"clip": Clip(low=0.3, high=0.2), "finish_push": 0.1, "kl": KLAnchor(beta=0.05)},
    {"clip": Clip(low=0.05, high=0.05), "scale": "std", "baseline": "leave_one_out"},
]


FUNCTIONS = {"max": max, "min": min, "exp": math.exp, "sqrt": math.sqrt, "log": math.log}


def value(formula: str, row: int, names: dict) -> float:
    """The formula as arithmetic."""
    text = formula.replace("×", "*").replace("−", "-").replace("±", "-" if BATCH.truncated_R[row] else "+")
    return eval(text, FUNCTIONS | names)


def advantage(arm: Arm, row: int) -> float:
    """A_i from the advantage's formula."""
    own = next(group for group in GROUPS if row in group)
    rewards = REWARDS[own]
    text = advantage_formula(arm).replace("mean(other r)", "others").replace("−", "-").replace("(r)", "")
    others = np.mean([REWARDS[other] for other in own if other != row])
    return eval(text, {"r_i": REWARDS[row], "mean": rewards.mean(), "others": others, "std": rewards.std(ddof=1)})


@pytest.mark.parametrize(("weighting", "parts"), list(itertools.product(WEIGHTINGS, PARTS)))
def test_the_formula_gives_the_weights_that_are_computed(weighting, parts):
    """Each formula is evaluated as arithmetic and compared with `token_weights`."""
    arm = Arm(weighting=weighting, **parts)
    found = token_weights(arm, BATCH, S0, CAP, MOVED_BATCH)
    for row, weights in enumerate(found.tokens):
        own = LENGTHS[next(group for group in GROUPS if row in group)]
        names = {"A_i": advantage(arm, row), "L_i": LENGTHS[row], "Lbar_g": own.mean(), "L_g": own.sum(), "s0": S0}
        names |= {"Lbar": LENGTHS.mean(), "R": 5, "G": 2, "max_tokens": CAP}
        names |= {"H_t": ENTROPY[row][0], "tau": 0.9}  # 8 of 40 tokens: 5 of 0.95 and 3 of 0.9
        names |= {"logp": MOVED[row], "logp_start": 0.0, "c": 0 if found.clipped_R[row] else 1}
        assert value(arm_formula(arm), row, names) == pytest.approx(weights[0], abs=1e-12)
    if arm.clip is not None:
        assert found.clipped_R.any() and not found.clipped_R.all()


def test_formulas_by_hand():
    assert arm_formula(Arm(weighting="token")) == "A_i × s0 / Lbar_g"
    push = Arm(weighting="rollout", truncated="apart", finish_push=0.1, clip=Clip(), kl=KLAnchor(beta=0.05))
    assert arm_formula(push) == "c × (A_i × s0 / L_i ± 0.1 × s0 / L_i) − 0.05 × (logp − logp_start)"
    damped = Arm(weighting="rollout", advantages="positive", kl=KLAnchor(beta=0.05, damp_only=True))
    assert arm_formula(damped) == "max(max(A_i, 0) × s0 / L_i − 0.05 × max(logp − logp_start, 0), 0)"
    grpo = Arm(weighting="grpo", kl=KLAnchor(beta=0.04, estimator="k3", unit="advantage"))
    assert arm_formula(grpo) == "A_i × s0 / L_i − 0.04 × s0 / L_i × (1 − exp(logp_start − logp))"
    assert advantage_formula(Arm(weighting="grpo", scale="std")) == "(r_i − mean(r)) / std(r)"


def test_every_letter_of_a_formula_is_explained():
    for weighting, parts in itertools.product(WEIGHTINGS, PARTS):
        arm = Arm(weighting=weighting, **parts)
        text = symbols([arm])
        for letter in set(re.findall(r"[A-Za-z]\w*", arm_formula(arm))) - {*FUNCTIONS, "s0", "logp_start"}:
            assert f"{letter}: " in text, (arm_formula(arm), text)


def test_letters_say_what_the_arms_say():
    plain, response = Arm(weighting="token"), Arm(weighting="dapo", tokens="response", scale="std")
    assert symbols([plain]) == (
        "A_i: a rollout's advantage, its reward minus the mean reward of its group (the rollouts of one cell). "
        "L_i: its thinking tokens and the token that closes them. Lbar_g: the group's mean L_i. The visible answer never carries weight."
    )
    assert "divided by the standard deviation" in symbols([response])
    assert "never carries weight" not in symbols([response])
    both = symbols([plain, response])
    assert "its reward against the arm's baseline" in both and "as the arm says" in both


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


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tokens": "response"}, "All sampled tokens carry weight, the visible answer and the end token too."),
        ({"baseline": "leave_one_out"}, "Its advantage is its reward minus the mean reward of its group's others."),
        ({"baseline": "none"}, "Its advantage is its reward."),
        (
            {"scale": "std"},
            "Its advantage is its reward minus the mean reward of its group (the rollouts of one cell), divided by the standard "
            "deviation (n − 1) of the group's rewards.",
        ),
        ({"truncated": "mask"}, "Truncated rollouts count in the group's mean reward, but carry no weight."),
        ({"truncated": "penalize", "truncation_penalty": 0.5}, "A truncated rollout loses 0.5 of its reward."),
        (
            {"no_signal": "drop"},
            "A group whose rewards are all equal leaves every mean over the update and carries no weight of any kind.",
        ),
        (
            {"clip": Clip(low=0.2, high=0.28)},
            "A token with a positive weight counts for nothing where the trainer finds it more than 1.28 times as likely as "
            "the sampler did, one with a negative weight where it is less than 0.8 times.",
        ),
        (
            {"kl": KLAnchor(beta=0.04, estimator="k3", unit="advantage")},
            "Every token is pulled toward the start by 0.04 times 1 − exp(−d) where it moved by d nats, spread over tokens as an "
            "advantage of that size would be.",
        ),
        (
            {"truncated": "mask", "kl": KLAnchor(beta=1)},
            "Truncated rollouts count in the group's mean reward, but carry no weight.",
        ),
        ({"reward": ArmReward(length_bonus=0.1)}, "Its reward has length bonus 0.1, not 0.3."),
        ({"optimizer": ArmAdam(name="adamw", weight_decay=0.1)}, "Its optimizer has name adamw, not adam; weight decay 0.1, not 0."),
        ({"optimizer": ArmAdam(max_grad_norm=1.0)}, "Its optimizer has max grad norm 1, not none."),
    ],
)  # fmt: skip
def test_one_part_one_sentence(fields, sentence):
    plain = arm_in_words(Arm(weighting="rollout"), TRAINING)
    found = arm_in_words(Arm(weighting="rollout", **fields), TRAINING)
    assert [line for line in found if line not in plain][:1] == [sentence]


def test_what_the_pull_does_not_reach():
    pulled = "Every token but those of truncated rollouts is pulled toward the start by 1 per nat that it moved."
    for truncated in ("apart", "mask"):
        assert arm_in_words(Arm(weighting="rollout", truncated=truncated, kl=KLAnchor(beta=1)), TRAINING)[-1] == pulled
    pushed = arm_in_words(Arm(weighting="rollout", truncated="apart", finish_push=1, kl=KLAnchor(beta=1)), TRAINING)
    assert pushed[-1] == pulled.replace(" but those of truncated rollouts", "")


def test_no_field_of_an_arm_is_left_without_words():
    """Every field that is not at its default makes a sentence: a new field without one fails here."""
    others = {
        "tokens": "response", "baseline": "none", "scale": "std", "no_signal": "drop", "advantages": "positive", "truncated": "mask",
        "finish_push": 1.0, "clip": Clip(), "kl": KLAnchor(beta=1.0), "reward": ArmReward(loop_penalty=1.0), "learning_rate": 1.0,
        "optimizer": ArmAdam(eps=1.0), "external": External(command=["train"], each="update"),
    }  # fmt: skip
    assert set(others) == set(Arm.model_fields) - {"weighting", "note", "truncation_penalty"}
    plain = Arm(weighting="rollout")
    for name, other in others.items():
        changed = plain.model_copy(update={name: other})
        for training in (TRAINING, None):
            assert arm_in_words(changed, training) != arm_in_words(plain, training), name


def test_without_a_plan_the_arm_says_its_own_values():
    arm = Arm(weighting="rollout", learning_rate=2e-5, optimizer=ArmAdam(weight_decay=0.1), reward=ArmReward(length_bonus=0.0))
    assert arm_in_words(arm, None)[1:] == [
        "Its learning rate is 2e-05.",
        "Its reward has length bonus 0.",
        "Its optimizer has weight decay 0.1.",
    ]


def test_reward_and_optimizer():
    assert reward_in_words(Reward(length_bonus=0)) == "0 unless a rollout is correct, finished and free of loops; then 1"
    assert reward_in_words(Reward(length_bonus=0, loop_penalty=0.5)).endswith("then 1; less 0.5 for one that loops")
    assert optimizer_in_words(Adam()) == "Adam from empty moments"
    assert optimizer_in_words(Adam(name="adamw", state="start", weight_decay=0.01, max_grad_norm=1)) == (
        "AdamW from the start adapter's moments, weight decay 0.01, gradients of norm 1 at most"
    )
