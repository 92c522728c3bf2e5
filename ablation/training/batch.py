"""From the rollouts of an update to its weights: the data's way through reward, advantage and arm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ablation.plan.arms import Arm, Reward
from ablation.rollouts.outcomes import Outcomes
from ablation.rollouts.stage import Stage
from ablation.rollouts.thinking import thinking_span
from ablation.training.rewards import rewards
from ablation.training.weights import RolloutBatch, Weights, token_weights


@dataclass(frozen=True)
class WeightedUpdate:
    """What one update trains on."""

    rewards_R: np.ndarray
    weights: Weights


def weigh_update(
    arm: Arm,
    stage: Stage,
    outcomes: Outcomes,
    *,
    reward: Reward,
    reference: dict[str, float],
    s0: float,
    logprob_change: Callable[[], list[np.ndarray]],
) -> WeightedUpdate:
    """The weights of `arm` on the rollouts of `stage` (R rollouts, in stored order).

    `reference` is cell id -> mean clean thinking length of the family's sweep; `logprob_change` gives logp - logp_start of
    every sampled token and is only called for an arm with a KL anchor.
    """
    cells = outcomes.cell.tolist()
    rewards_R = rewards(cells, outcomes.clean, outcomes.thinking_length, reference, reward)
    batch = RolloutBatch(
        cells=cells,
        rewards_R=rewards_R,
        truncated_R=outcomes.truncated,
        lengths_R=stage.lengths,
        weighted_start_R=_thinking_starts(stage),
        weighted_length_R=outcomes.weighted_length,
    )
    change = logprob_change() if arm.kl is not None else None
    return WeightedUpdate(rewards_R, token_weights(arm, batch, s0, change))


def _thinking_starts(stage: Stage) -> np.ndarray:
    starts = np.zeros(len(stage), dtype=np.int64)
    for row in range(len(stage)):
        ids = stage.token_ids[stage.offsets[row] : stage.offsets[row + 1]].tolist()
        starts[row] = thinking_span(
            ids,
            prompt_opens_thinking=bool(stage.prompt_opens_thinking[row]),
            open_id=stage.info.think_open_id,
            close_id=stage.info.think_close_id,
        ).start
    return starts
