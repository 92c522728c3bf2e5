"""Rows of an update as the service's training data, and its answers as arrays again.

A row is its prompt and tokens but the last as input, and all but the first as targets. The protocol's loss `importance_sampling`
is -ratio * advantage of each target; the study's is the plain sum of -weight * ratio, so the weights go as the advantages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ablation.policy.base import ScoreRow, TrainRow

Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class Reductions:
    """What a service makes of the losses of single tokens: over the targets of a row, and over the rows before a step."""

    tokens: Reduction = "sum"
    rows: Reduction = "sum"

    def factor(self, targets: int, rows: int) -> float:
        """What an array is multiplied by so that what the service divides by is gone."""
        return (targets if self.tokens == "mean" else 1) * (rows if self.rows == "mean" else 1)

    def record(self) -> dict[str, str]:
        return {"tokens": self.tokens, "rows": self.rows}


def targets_of_row(row: ScoreRow) -> int:
    """How many targets the service sees of a row: all its tokens, prompt included, but the first."""
    return len(row.prompt_ids) + len(row.token_ids) - 1


def scoring_data(rows: Sequence[ScoreRow]) -> list[Any]:
    """What `forward` with `cross_entropy` is given: its answer has the logprob of every target."""
    return [_datum(row, weights=_behind_prompt(row, np.ones(len(row.token_ids)))) for row in rows]


def training_data(rows: Sequence[TrainRow], reductions: Reductions) -> list[Any]:
    """What `forward_backward` with `importance_sampling` is given."""
    count = len(rows)
    return [
        _datum(
            row,
            logprobs=_behind_prompt(row, np.where(row.weights != 0, row.sampler_logprobs, 0.0)),
            advantages=_behind_prompt(row, row.weights * reductions.factor(targets_of_row(row), count)),
        )
        for row in rows
    ]


def _datum(row: ScoreRow, **inputs: np.ndarray) -> Any:
    from tinker import types

    ids = [*row.prompt_ids, *(int(one) for one in row.token_ids)]
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={"target_tokens": np.array(ids[1:], dtype=np.int64), **inputs},
    )


def _behind_prompt(row: ScoreRow, values: np.ndarray) -> np.ndarray:
    """`values` [T] of the row's tokens, behind zeros for the prompt's, in float32."""
    return np.concatenate([np.zeros(len(row.prompt_ids) - 1), values]).astype(np.float32)


def token_logprobs(rows: Sequence[ScoreRow], output: Any) -> list[np.ndarray]:
    """Logprobs (float64, nats) of each row's tokens in an answer to `scoring_data` or `training_data`.

    Raises `ValueError` if the answer has not one for each target.
    """
    if len(output.loss_fn_outputs) != len(rows):
        raise ValueError(f"{len(output.loss_fn_outputs)} answers for {len(rows)} rows")
    found = []
    for row, told in zip(rows, output.loss_fn_outputs, strict=True):
        if "logprobs" not in told:
            raise ValueError(f"an answer without logprobs; it has {', '.join(sorted(told))}")
        values = np.asarray(told["logprobs"].data, dtype=np.float64)
        if len(values) != targets_of_row(row):
            raise ValueError(f"{len(values)} logprobs for {targets_of_row(row)} targets")
        found.append(values[len(row.prompt_ids) - 1 :])
    return found
