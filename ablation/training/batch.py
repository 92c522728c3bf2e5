"""From the rollouts of an update to its weights: the data's way through reward, advantage and arm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ablation.plan.arms import Arm
from ablation.plan.model import Plan
from ablation.rollouts.outcomes import Outcomes
from ablation.rollouts.stage import Stage
from ablation.rollouts.thinking import thinking_span
from ablation.training.rewards import rewards
from ablation.training.weights import Logprobs, RolloutBatch, Weights, token_weights

Score = Callable[[], list[np.ndarray]]
"""Logprobs of every sampled token of the update, R arrays [T_i]."""


@dataclass(frozen=True)
class WeightedUpdate:
    """What one update trains on."""

    rewards_R: np.ndarray
    weights: Weights


def weigh_update(
    arm: Arm,
    plan: Plan,
    stage: Stage,
    outcomes: Outcomes,
    *,
    reference: dict[str, float],
    s0: float,
    trainer_logprobs: Score,
    start_logprobs: Score,
) -> WeightedUpdate:
    """The weights of `arm` on the rollouts of `stage` (R rollouts, in stored order).

    `reference` is cell id -> mean clean thinking length of the family's sweep. `trainer_logprobs` scores under the adapter before
    the update, `start_logprobs` under the starting one; they are only called for an arm that needs them.
    """
    cells = outcomes.cell.tolist()
    rewards_R = rewards(
        cells, outcomes, reference, plan.training.reward_of(arm), truncation_penalty=arm.truncation_penalty or 0.0
    )
    starts_R, lengths_R = weighted_spans(arm, stage, outcomes)
    batch = RolloutBatch(
        cells=cells,
        rewards_R=rewards_R,
        truncated_R=outcomes.truncated,
        lengths_R=stage.lengths,
        weighted_start_R=starts_R,
        weighted_length_R=lengths_R,
        sampler_logprobs=_by_rollout(stage, stage.logprobs),
        entropy=_by_rollout(stage, stage.top_entropy),
    )
    logprobs = Logprobs(
        trainer=trainer_logprobs() if arm.clip is not None or arm.kl is not None else None,
        start=start_logprobs() if arm.kl is not None else None,
    )
    return WeightedUpdate(rewards_R, token_weights(arm, batch, s0, plan.sampling.max_tokens, logprobs))


def _by_rollout(stage: Stage, values: np.ndarray) -> list[np.ndarray]:
    """A flat per-token array of the stage as R arrays [T_i]."""
    return [values[stage.offsets[row] : stage.offsets[row + 1]] for row in range(len(stage))]


def weighted_spans(arm: Arm, stage: Stage, outcomes: Outcomes) -> tuple[np.ndarray, np.ndarray]:
    """(int64 [R] first weighted token, int64 [R] number of weighted tokens) of each rollout."""
    starts_R = np.zeros(len(stage), dtype=np.int64)
    if arm.tokens == "response":
        return starts_R, stage.lengths
    for row in range(len(stage)):
        ids = stage.token_ids[stage.offsets[row] : stage.offsets[row + 1]].tolist()
        starts_R[row] = thinking_span(
            ids,
            prompt_opens_thinking=bool(stage.prompt_opens_thinking[row]),
            open_id=stage.info.think_open_id,
            close_id=stage.info.think_close_id,
        ).start
    return starts_R, outcomes.weighted_length
