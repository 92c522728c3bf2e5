import pytest

from ablation.plan.arms import Arm


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"weighting": "rollout"}, {"weighting": "grpo", "note": "the mean over each response"}, True),
        ({"weighting": "token"}, {"weighting": "prompt_mean"}, True),
        (
            {"weighting": "token", "truncated": "penalize", "truncation_penalty": 0.5},
            {"weighting": "prompt_mean", "truncated": "penalize", "truncation_penalty": 0.5},
            True,
        ),
        ({"weighting": "token", "truncated": "mask"}, {"weighting": "prompt_mean", "truncated": "mask"}, False),
        ({"weighting": "token", "no_signal": "drop"}, {"weighting": "prompt_mean", "no_signal": "drop"}, False),
        ({"weighting": "token"}, {"weighting": "dapo"}, False),
        ({"weighting": "rollout"}, {"weighting": "grpo", "scale": "std"}, False),
    ],
)
def test_arms_that_train_alike_under_other_words(one, other, alike):
    """The formulas: A s0 / L_i twice; A s0 R / (G L_g) is A s0 / Lbar_g where each of G groups has R / G rollouts in the loss."""
    assert (Arm.model_validate(one).same_as == Arm.model_validate(other).same_as) is alike
