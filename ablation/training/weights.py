"""An arm is one array of weights: this file turns rewards into one weight per sampled token.

    A_i             `advantages`: reward against the baseline; 0 for a rollout that is out of the loss
    weighting       A_i -> the weight of each weighted token of rollout i: `weightings`, one file each
    finishing push  +- push * s0 / L_i on each of them: plus for a finished rollout, minus for a truncated one
    clip            0 where the clipped objective is flat
    KL anchor       - beta * (logp - logp_start) on each, or k3's form of it

Weighted tokens are the thinking and the token that closes it, or all that was sampled; L_i is their number in rollout i (so
that a per-rollout total is exactly A_i * s0). The same array goes to every backend and to the audit.

Shapes: R rollouts, T_i sampled tokens of rollout i.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ablation.plan.arms import Arm
from ablation.training.advantages import advantages, group_rows
from ablation.training.terms import anchor, clipped, damped
from ablation.training.weightings import weighting
from ablation.training.weightings.rollouts import Rollouts, divided


@dataclass(frozen=True)
class RolloutBatch:
    """What the weights of an update are made from."""

    cells: Sequence[str]
    rewards_R: np.ndarray
    truncated_R: np.ndarray
    lengths_R: np.ndarray  # sampled tokens
    weighted_start_R: np.ndarray  # first weighted token
    weighted_length_R: np.ndarray  # weighted tokens, which follow each other
    sampler_logprobs: list[np.ndarray] = field(default_factory=list)  # R arrays [T_i]; an arm with a clip needs them
    entropy: list[np.ndarray] = field(default_factory=list)  # R arrays [T_i], the sampler's; a weighting by entropy needs them


@dataclass(frozen=True)
class Logprobs:
    """Logprobs of every sampled token, R arrays [T_i]: under the adapter before the update, and under the starting one."""

    trainer: list[np.ndarray] | None = None
    start: list[np.ndarray] | None = None


@dataclass(frozen=True)
class Weights:
    """One weight per sampled token, and the parts that it is the sum of."""

    tokens: list[np.ndarray]  # R arrays, float64 [T_i]
    kl: list[np.ndarray]  # the KL anchor's part of `tokens`
    advantages_R: np.ndarray
    no_signal: list[str]  # cells whose rewards teach nothing
    clipped_R: np.ndarray  # tokens of each rollout that the clip left without an advantage
    weighted_R: np.ndarray  # tokens of each rollout with a weight before the KL anchor, whose last bits a machine may round away
    anchored_R: np.ndarray  # tokens of each rollout under the KL anchor


def token_weights(arm: Arm, batch: RolloutBatch, s0: float, max_tokens: int, logprobs: Logprobs | None = None) -> Weights:
    """The weights of one update of `arm`.

    `logprobs.trainer` is needed by an arm with a clip or a KL anchor, `logprobs.start` by one with an anchor: ValueError without.
    A rollout without weighted tokens has weight 0 everywhere.
    """
    logprobs = logprobs or Logprobs()
    _check_logprobs(arm, batch, logprobs)
    rollouts, kept_R, no_signal = count_rollouts(arm, batch, s0, max_tokens)
    weigh = weighting(arm.weighting)
    per_token = weigh(rollouts)
    unit = weigh(dataclasses.replace(rollouts, advantages_R=rollouts.in_loss_R.astype(np.float64)))
    push_R = divided(np.where(batch.truncated_R, -1.0, 1.0) * kept_R * arm.finish_push * s0, batch.weighted_length_R)
    anchored_R = (kept_R if arm.finish_push else rollouts.in_loss_R) & (arm.kl is not None)

    tokens, kl_parts = [], []
    clipped_R, weighted_R = (np.zeros(len(batch.cells), dtype=np.int64) for _ in range(2))
    for row, weight in enumerate(per_token):
        start, count = int(batch.weighted_start_R[row]), int(batch.weighted_length_R[row])
        span = slice(start, start + count)
        weights_T = np.zeros(int(batch.lengths_R[row]))
        weights_T[span] = weight + push_R[row]
        if arm.clip is not None:
            flat_T = clipped(weights_T, logprobs.trainer[row], batch.sampler_logprobs[row], arm.clip)
            weights_T[flat_T] = 0.0
            clipped_R[row] = np.count_nonzero(flat_T)
        weighted_R[row] = np.count_nonzero(weights_T)
        kl_T = np.zeros_like(weights_T)
        if anchored_R[row]:
            with np.errstate(invalid="ignore", over="ignore"):  # what is no number stays none: the update must see and name it
                change_T = logprobs.trainer[row][span] - logprobs.start[row][span]
                kl_T[span] = anchor(arm.kl, unit[row], change_T)
            if arm.kl.damp_only:
                kl_T = damped(kl_T, weights_T)
        tokens.append(weights_T + kl_T)
        kl_parts.append(kl_T)
    under_anchor_R = np.where(anchored_R, batch.weighted_length_R, 0)
    return Weights(tokens, kl_parts, rollouts.advantages_R, no_signal, clipped_R, weighted_R, under_anchor_R)


def count_rollouts(arm: Arm, batch: RolloutBatch, s0: float, max_tokens: int) -> tuple[Rollouts, np.ndarray, list[str]]:
    """(what the arm's weighting sees, bool [R]: rollouts that can carry weight at all, cells without a signal)."""
    groups = group_rows(batch.cells)
    finished_R = ~batch.truncated_R
    in_baseline_R = finished_R if arm.truncated == "apart" else np.ones(len(batch.cells), dtype=bool)
    advantages_R, no_signal = advantages(groups, batch.rewards_R, in_baseline_R, baseline=arm.baseline, scale=arm.scale)
    if arm.advantages == "positive":
        advantages_R = np.maximum(advantages_R, 0.0)
    kept_R = np.ones(len(batch.cells), dtype=bool)
    if arm.no_signal == "drop":
        for cell in no_signal:
            kept_R[groups[cell]] = False
    in_loss_R = kept_R & (finished_R if arm.truncated in ("apart", "mask") else True)
    group_R = np.empty(len(batch.cells), dtype=np.int64)
    for number, rows in enumerate(groups.values()):
        group_R[rows] = number
    advantages_R = np.where(in_loss_R, advantages_R, 0.0)
    spans = zip(batch.entropy, batch.weighted_start_R, batch.weighted_length_R, strict=True) if batch.entropy else ()
    entropy = [own_T[start : start + count] for own_T, start, count in spans]
    return Rollouts(advantages_R, batch.weighted_length_R, group_R, in_loss_R, s0, max_tokens, entropy), kept_R, no_signal


def _check_logprobs(arm: Arm, batch: RolloutBatch, logprobs: Logprobs) -> None:
    if (arm.clip is not None or arm.kl is not None) and logprobs.trainer is None:
        raise ValueError("an arm with a clip or a KL anchor needs the trainer's logprob of every token")
    if arm.clip is not None and len(batch.sampler_logprobs) != len(batch.cells):
        raise ValueError("an arm with a clip needs the sampler's logprob of every token")
    if arm.kl is not None and logprobs.start is None:
        raise ValueError("an arm with a KL anchor needs logp_start of every token")
