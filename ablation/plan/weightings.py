"""The weightings that an arm can name, with the weight that each gives to a token of rollout i.

`training.weightings` computes them; its README says how another one is added.
"""

from __future__ import annotations

from typing import NamedTuple


class Registered(NamedTuple):
    """What is said of a weighting wherever an arm is shown."""

    formula: str
    """Begins with `A_i * `. A_i: advantage. L_i: weighted tokens of the rollout; Lbar_g, L_g: mean and sum of its group's; Lbar:
    mean of the update's. R, G: rollouts and groups in the loss. max_tokens: the plan's cap. s0: the plan's fixed scale. H_t: the
    sampler's entropy at the token, nats; tau: what the fifth of the update's tokens with the highest entropy reach."""
    words: str
    """One sentence."""
    per_rollout: bool = False
    """The weights of a rollout add up to A_i * s0, so those of a group whose advantages do net to zero: the audit checks that."""


WEIGHTINGS = {
    "token": Registered(
        "A_i * s0 / Lbar_g",
        "A rollout's total weight is its advantage times its length against its group's mean: long rollouts weigh more.",
    ),
    "rollout": Registered("A_i * s0 / L_i", "A rollout's total weight is its advantage, whatever its length.", per_rollout=True),
    "grpo": Registered(
        "A_i * s0 / L_i",
        "The mean over each response, then over responses: a rollout's total weight is its advantage, whatever its length.",
        per_rollout=True,
    ),
    "dapo": Registered(
        "A_i * s0 / Lbar",
        "The mean over all tokens: a rollout's total weight is its advantage times its length against the update's mean.",
    ),
    "dr_grpo": Registered(
        "A_i * s0 / max_tokens",
        "A sum over tokens with a constant divisor: a rollout's total weight is its advantage times its share of the token cap.",
    ),
    "prompt_mean": Registered(
        "A_i * s0 * R / (G * L_g)",
        "The mean over the tokens of each group, then over groups: long rollouts weigh more in their group, long groups do not.",
    ),
    "high_entropy": Registered(
        "A_i * s0 * (H_t >= tau) / Lbar",
        "The mean over all tokens of the update, of which only the fifth with the highest entropy carry weight.",
    ),
}
