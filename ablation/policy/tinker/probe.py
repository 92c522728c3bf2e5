"""What a service makes of a loss and of an optimizer step, measured on throw-away clients by how the adapter changes.

With both betas 0 and an eps far above every gradient, Adam's step is -(learning rate / eps) * gradient: what a client's adapter
changes by is the gradient that the service used. So it shows whether losses are summed or averaged, whether the weights are
used, and in which direction; `forward` before and after a step gives the gradient's scale without the model at hand, as the
loss falls by (gradient . change).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ablation.errors import UsageError
from ablation.plan.arms import Adam
from ablation.plan.prices import Tokens
from ablation.policy.base import ScoreRow, TrainRow
from ablation.policy.tinker.data import Reduction, Reductions, scoring_data, targets_of_row, token_logprobs, training_data
from ablation.policy.tinker.policy import KEPT, TinkerPolicy, adam_params
from ablation.policy.tinker.service import unique_name
from ablation.policy.tinker.weights import Weights, change, largest_change

EPS = 1e6
"""Far above every gradient, so that the step is in proportion to it."""
STEP = 1e-4
"""Learning rate / eps to begin with; changed until the largest weight moves between the two sizes below."""
SMALLEST_MOVE, LARGEST_MOVE = 2e-6, 5e-2
TOLERANCE = 0.02
"""Two changes that should be equal differ by float32's last bits of the weights, and by what the weights moved between them."""
SCALE_TOLERANCE = 0.2
"""The scale is a quotient of small differences of logprobs, which are rounded."""
FRESH = 0.02
"""Share of the learning rate by which a fresh Adam's first step may differ from it in weights with a clear gradient."""
CLEAR = 0.05
"""Share of the largest gradient from which on a gradient is clear."""


class Throwaway:
    """A training client at the start state that is trained on and thrown away. It counts what it asks for."""

    def __init__(self, policy: TinkerPolicy, state: str, *, optimizer: bool) -> None:
        self.policy, self.service = policy, policy.service
        self.trainer = self.service.trainer(state, optimizer=optimizer)
        self.weights = self._download()

    def _download(self) -> Weights:
        self.sampler_path, weights = self.policy.stored_sampler(self.trainer)
        return weights

    def logprobs(self, rows: Sequence[ScoreRow]) -> np.ndarray:
        output = self.service.wait(self.trainer.forward(scoring_data(rows), "cross_entropy"))
        self.policy.used += Tokens(prefill=_tokens(rows))
        return np.concatenate(token_logprobs(rows, output))

    def step(self, rows: Sequence[TrainRow], params: Any, reductions: Reductions | None = None) -> np.ndarray:
        """The change of all weights that one step on `rows` makes."""
        data = training_data(rows, reductions or Reductions())
        self.service.wait(self.trainer.forward_backward(data, "importance_sampling"))
        self.policy.used += Tokens(train=_tokens(rows))
        told = self.service.wait(self.trainer.optim_step(params))
        self.metrics = {name: float(value) for name, value in (told.metrics or {}).items()}
        before, self.weights = self.weights, self._download()
        self.moved = largest_change(self.weights, before)
        return change(self.weights, before)

    def save(self) -> str:
        return self.service.wait(self.trainer.save_state(unique_name("probe"), ttl_seconds=KEPT)).path

    def close(self) -> None:
        self.service.let_go(self.trainer)


def plain_step(step: float, weight_decay: float = 0.0, clip: float | None = None) -> Any:
    """Adam's parameters under which a step is -`step` * gradient."""
    from tinker import types

    more = {} if clip is None else {"grad_clip_norm": clip}
    return types.AdamParams(learning_rate=step * EPS, beta1=0.0, beta2=0.0, eps=EPS, weight_decay=weight_decay, **more)


def leaves_gradients(policy: TinkerPolicy, row: TrainRow) -> bool:
    """Whether a gradient that was computed and never stepped on is found by the next client, once its own is let go."""
    policy.service.leaves_gradients = False
    dirty = Throwaway(policy, policy.start.path, optimizer=False)
    try:
        policy.service.wait(dirty.trainer.forward_backward(training_data([row], Reductions()), "importance_sampling"))
    finally:
        dirty.close()
    clean = Throwaway(policy, policy.start.path, optimizer=False)
    try:
        moved = clean.step([_times(row, 0.0)], plain_step(STEP))
    finally:
        clean.close()
    return bool(np.any(moved))


def find_reductions(policy: TinkerPolicy, row: TrainRow) -> tuple[Reductions, dict[str, Any], np.ndarray]:
    """(what the service does with a loss, numbers for the journal, minus the gradient of `row`'s loss up to a factor).

    `row` ends with tokens without a weight. Raises `UsageError` if the service's loss cannot be made the study's.
    """
    short = TrainRow(row.prompt_ids, *(values[: len(row.token_ids) // 2] for values in _arrays(row)))
    assert not np.any(row.weights[len(short.token_ids) :]), "the second half has no weight"
    probe = Throwaway(policy, policy.start.path, optimizer=False)
    try:
        step, first, fell = _sized(probe, short)
        size = float(np.linalg.norm(first))
        twice = _along(probe.step([short, short], plain_step(step)), first)
        longer = _along(probe.step([row], plain_step(step)), first)
        doubled = _along(probe.step([_times(short, 2.0)], plain_step(step)), first)
        nothing = float(np.linalg.norm(probe.step([_times(short, 0.0)], plain_step(step)))) / size
    finally:
        probe.close()
    found = {"two_rows": twice, "longer_row": longer, "doubled_weights": doubled, "no_weights": nothing}
    rows = _one_of(twice, {"sum": 2.0, "mean": 1.0})
    tokens = _one_of(longer, {"sum": 1.0, "mean": targets_of_row(short) / targets_of_row(row)})
    if rows is None or tokens is None or abs(doubled - 2) > 2 * TOLERANCE or nothing > TOLERANCE:
        told = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        raise UsageError(
            f"preflight: the service's `importance_sampling` is no sum of weight * ratio that this program knows: of the change "
            f"by one row, {told}",
            hint="Expected are two_rows 2 or 1, longer_row 1 or less by the share of tokens, doubled_weights 2, no_weights 0.",
        )
    reductions = Reductions(tokens, rows)
    scale = size * size / (fell * step) * reductions.factor(targets_of_row(short), 1)
    if not abs(scale - 1) <= SCALE_TOLERANCE:
        way = "the wrong way: it raises the loss" if fell <= 0 else f"{scale:.2f} times the gradient of the sum"
        raise UsageError(f"preflight: a step on one row goes {way}", hint="The service's loss is not the study's.")
    norm = size / step * reductions.factor(targets_of_row(short), 1)
    return reductions, found | {"scale": scale, "gradient_norm": norm}, first


def _sized(probe: Throwaway, row: TrainRow) -> tuple[float, np.ndarray, float]:
    """(step, change, by how much the loss fell) of a first step that moves the weights neither too little nor too much."""
    step = STEP
    for _ in range(6):
        before = probe.logprobs([row])
        moved = probe.step([row], plain_step(step))
        if SMALLEST_MOVE <= probe.moved <= LARGEST_MOVE:
            after = probe.logprobs([row])
            ratio = np.exp(before - row.sampler_logprobs)
            fell = float((row.weights * (np.exp(after - row.sampler_logprobs) - ratio)).sum())
            return step, moved, fell
        step *= 30.0 if probe.moved < SMALLEST_MOVE else 1 / 30.0
    raise UsageError(
        "preflight: the weight array has no effect: a step on a row with weights leaves the adapter as it is, or destroys it",
        hint="The service's `importance_sampling` is not the protocol's.",
    )


def check_optimizer(policy: TinkerPolicy, row: TrainRow, descent: np.ndarray, learning_rate: float) -> dict[str, Any]:
    """That a client from the start state has a fresh Adam, and that one from a stored state goes on with its moments.

    `descent`: the change by a step in proportion to the gradient of the same row.
    """
    adam = policy.adam.model_copy(update={"weight_decay": 0.0, "max_grad_norm": None})
    params = adam_params(adam, learning_rate)
    first = Throwaway(policy, policy.start.path, optimizer=False)
    second: Throwaway | None = None
    try:
        moved = first.step([row], params, policy.reductions)
        clear = np.abs(descent) > CLEAR * np.abs(descent).max()
        off = float(np.abs(moved[clear] / (learning_rate * np.sign(descent[clear])) - 1).max())
        if not off <= FRESH:
            raise UsageError(
                f"preflight: the first step from the start state differs by {off:.2g} of the learning rate from a fresh Adam's: "
                "the state brings an optimizer along, or the service has another one",
                hint="Store the start state with a client that has taken no step.",
            )
        stored = first.save()
        still = first.step([_times(row, 0.0)], params, policy.reductions)
        second = Throwaway(policy, stored, optimizer=True)
        again = second.step([_times(row, 0.0)], params, policy.reductions)
    finally:
        first.close()
        if second is not None:
            second.close()
    apart = float(np.linalg.norm(again - still) / max(np.linalg.norm(still), 1e-30))
    if not apart <= TOLERANCE:
        raise UsageError(
            f"preflight: a client that goes on from a stored state differs by {apart:.2g} from the one that stored it: "
            "its optimizer's moments are not stored",
            hint="An arm could not be continued after a stop.",
        )
    return {"first_step_off": off, "resumed_off": apart}


def check_adam_fields(policy: TinkerPolicy, row: TrainRow, adams: Sequence[Adam], step: float = STEP) -> dict[str, float]:
    """That what the plan asks of Adam beside its betas is not dropped: clipping, weight decay."""
    found: dict[str, float] = {}
    clips = any(adam.max_grad_norm is not None for adam in adams)
    decays = any(adam.weight_decay > 0 for adam in adams)
    if not clips and not decays:
        return found
    probe = Throwaway(policy, policy.start.path, optimizer=False)
    try:
        if clips:
            free = float(np.linalg.norm(probe.step([row], plain_step(step), policy.reductions)))
            held = float(np.linalg.norm(probe.step([row], plain_step(step, clip=free / step / 10), policy.reductions)))
            found["clipped"] = held / free
            if not abs(held / free - 0.1) <= 0.02:
                raise UsageError(
                    "training.optimizer.max_grad_norm: the service drops it: a gradient that is to be scaled to a tenth has "
                    f"{held / free:.2f} of its size",
                    hint="Plan no clipping, or another backend.",
                )
        if decays:
            before = np.concatenate([probe.weights[name].ravel() for name in sorted(probe.weights)]).astype(np.float64)
            start = policy.score([row])[0]
            moved = probe.step([_times(row, 0.0)], plain_step(1e-2 / EPS, weight_decay=0.1), policy.reductions)
            share = float(-(moved @ before) / (before @ before))
            found["decayed"] = share / 1e-3
            if not abs(share / 1e-3 - 1) <= 0.05:
                raise UsageError(
                    f"training.optimizer.weight_decay: the service takes {share:.2g} of the weights where 0.001 was asked for",
                    hint="Plan no weight decay, or another backend.",
                )
            if np.abs(policy.score([row])[0] - start).max() > 1e-6:
                raise UsageError(
                    "training.optimizer.weight_decay: the service decays the weights of other adapters than the one that steps",
                    hint="Plan no weight decay, or another backend.",
                )
    finally:
        probe.close()
    return found


def _along(moved: np.ndarray, first: np.ndarray) -> float:
    """Size of a change in units of the first one, along it."""
    return float(moved @ first / (first @ first))


def _one_of(value: float, expected: dict[Reduction, float]) -> Reduction | None:
    near = [name for name, wanted in expected.items() if abs(value / wanted - 1) <= TOLERANCE]
    return near[0] if len(near) == 1 else None


def _times(row: TrainRow, factor: float) -> TrainRow:
    return TrainRow(row.prompt_ids, row.token_ids, row.sampler_logprobs, row.weights * factor)


def _tokens(rows: Sequence[ScoreRow]) -> int:
    return sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)


def _arrays(row: TrainRow) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return row.token_ids, row.sampler_logprobs, row.weights
