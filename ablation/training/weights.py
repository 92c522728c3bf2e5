"""An arm is one array of weights: this file turns advantages into one weight per sampled token.

The weights sit on the thinking tokens and the token that closes the thinking, never on the visible answer. L_i is the
number of those tokens in rollout i (so that a per-rollout total is exactly A_i * s0), Lbar_g its group's mean.

    token      each token of rollout i gets A_i * s0 / Lbar_g; the rollout's total grows with L_i
    rollout    each token of rollout i gets A_i * s0 / L_i; the rollout's total is A_i * s0, whatever L_i

Then, where the arm asks for them: the finishing push (+-push * s0 / L_i), the sign filter and the KL anchor
(- beta * (logp - logp_start) on each token). The same array goes to every backend and to the audit.

Shapes: R rollouts, T_i sampled tokens of rollout i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ablation.plan.arms import Arm
from ablation.training.advantages import advantages, group_rows


@dataclass(frozen=True)
class RolloutBatch:
    """What the weights of an update are made from. `thinking_*` frame the weighted tokens of each rollout."""

    cells: Sequence[str]
    rewards_R: np.ndarray
    truncated_R: np.ndarray
    lengths_R: np.ndarray  # sampled tokens
    weighted_start_R: np.ndarray  # first weighted token
    weighted_length_R: np.ndarray  # thinking tokens and the closing token


@dataclass(frozen=True)
class Weights:
    """One weight per sampled token, and the parts that it is the sum of."""

    tokens: list[np.ndarray]  # R arrays, float64 [T_i]
    kl: list[np.ndarray]  # the KL anchor's part of `tokens`
    advantages_R: np.ndarray
    no_signal: list[str]  # cells whose rewards were all equal


def weigh_token(advantages_R: np.ndarray, lengths_R: np.ndarray, group_mean_R: np.ndarray, s0: float) -> np.ndarray:
    """A_i * s0 / Lbar_g: the control of the study, and what a loss summed over tokens does within a group."""
    return advantages_R * s0 / np.maximum(group_mean_R, 1.0)


def weigh_rollout(advantages_R: np.ndarray, lengths_R: np.ndarray, group_mean_R: np.ndarray, s0: float) -> np.ndarray:
    """A_i * s0 / L_i: the total is the advantage, whatever the length."""
    return advantages_R * s0 / np.maximum(lengths_R, 1)


WEIGHTINGS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, float], np.ndarray]] = {
    "token": weigh_token,
    "rollout": weigh_rollout,
}
"""A weighting takes (advantages [R], weighted lengths [R], mean weighted length of the group [R], s0) and returns the
weight of each of a rollout's tokens, float64 [R]. A new one is a function here, its name in `plan.arms` and its test."""


def token_weights(arm: Arm, batch: RolloutBatch, s0: float, logprob_change: list[np.ndarray] | None = None) -> Weights:
    """The weights of one update of `arm`.

    `logprob_change` holds logp - logp_start of every sampled token (nats, R arrays of length T_i); an arm with a KL
    anchor needs it. A rollout without thinking tokens has weight 0 everywhere.
    """
    groups = group_rows(batch.cells)
    counted_R = ~batch.truncated_R if arm.truncated == "apart" else np.ones(len(batch.cells), dtype=bool)
    advantages_R, no_signal = advantages(groups, batch.rewards_R, counted_R)
    if arm.advantages == "positive":
        advantages_R = np.maximum(advantages_R, 0.0)
    group_mean_R = np.ones(len(batch.cells))
    for rows in groups.values():
        counted = rows[counted_R[rows]]
        if len(counted):
            group_mean_R[rows] = batch.weighted_length_R[counted].mean()
    per_token_R = WEIGHTINGS[arm.weighting](advantages_R, batch.weighted_length_R, group_mean_R, s0)
    if arm.finish_push:
        push_R = np.where(batch.truncated_R, -1.0, 1.0) * arm.finish_push * s0
        per_token_R = per_token_R + push_R / np.maximum(batch.weighted_length_R, 1)

    tokens, kl_parts = [], []
    for row, weight in enumerate(per_token_R):
        start, count = int(batch.weighted_start_R[row]), int(batch.weighted_length_R[row])
        weights_T = np.zeros(int(batch.lengths_R[row]))
        weights_T[start : start + count] = weight
        kl_T = np.zeros_like(weights_T)
        if arm.kl is not None and (counted_R[row] or arm.finish_push):
            if logprob_change is None:
                raise ValueError("an arm with a KL anchor needs logp - logp_start of every token")
            kl_T[start : start + count] = -arm.kl.beta * logprob_change[row][start : start + count]
            if arm.kl.damp_only:  # toward zero, at most to it
                kl_T = np.clip(kl_T, -weights_T, 0.0)
        tokens.append(weights_T + kl_T)
        kl_parts.append(kl_T)
    return Weights(tokens, kl_parts, advantages_R, no_signal)
