"""The weightings that an arm can name, with the weight that each gives to a token of rollout i.

`training.weightings` computes them; its README says how another one is added.
"""

from __future__ import annotations

WEIGHTINGS = {
    "token": "A_i * s0 / Lbar_g",
    "rollout": "A_i * s0 / L_i",
    "grpo": "A_i * s0 / L_i",
    "dapo": "A_i * s0 / Lbar",
    "dr_grpo": "A_i * s0 / max_tokens",
    "prompt_mean": "A_i * s0 * R / (G * L_g)",
    "high_entropy": "A_i * s0 * (H_t >= tau) / Lbar",
}
"""Name -> formula. A_i: advantage. L_i: weighted tokens of the rollout; Lbar_g, L_g: mean and sum of its group's; Lbar: mean of
the update's. R, G: rollouts and groups in the loss. max_tokens: the plan's cap. s0: the plan's fixed scale.
H_t: the sampler's entropy at the token, in nats; tau: what the fifth of the update's tokens with the highest entropy reach."""
