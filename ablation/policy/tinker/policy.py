"""A policy that lives at a training service: it is sampled, scored and trained there, and known here by downloads.

What is held is a stored state of the service and the weights in it. Clients are made from the state when they are needed, so that
one that is lost is made again; an update that fails on the way begins again at the state before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ablation.errors import EngineFailed, IntegrityError, UsageError
from ablation.files import parse_json, write_json
from ablation.plan.arms import Adam
from ablation.plan.model import Plan
from ablation.plan.prices import Tokens
from ablation.policy.base import Progress, SampledTokens, SampleRequest, ScoreRow, Taken, TrainRow, UpdateStats
from ablation.policy.mismatch import mismatch
from ablation.policy.tinker.data import Reductions, scoring_data, token_logprobs, training_data
from ablation.policy.tinker.sampling import Round, SamplingSettings, checked_rollout
from ablation.policy.tinker.service import Denied, Service, unique_name, unreadable_metric
from ablation.policy.tinker.trouble import understand
from ablation.policy.tinker.weights import Weights, all_finite, digest, from_folder, write_adapter
from ablation.rollouts.values import values_in_effect

STATE_FILE = "service.json"
"""Of a checkpoint: where at the service the state is that the adapter beside it was downloaded from."""
KEPT = 7 * 86400
"""Seconds for which weights are stored that were only sampled from, or looked at; a state that a checkpoint names never ends."""
MISMATCH = {"float32": 1e-3, "bfloat16": 0.05}
"""Bounds of `policy.tinker.mismatch` where the plan gives none, by dtype (nats)."""
NORM_METRICS = ("grad_norm", "skyrl.ai/grad_norm", "grad_norm:mean")
"""Names under which services tell the norm of the gradient of a step."""
T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """What is held: a stored state at the service, whether its optimizer goes with it, and the weights in it."""

    path: str
    optimizer: bool
    weights: Weights


@dataclass
class Live:
    """Clients that hold a state."""

    trainer: Any
    epoch: int
    sampler_path: str | None = None
    sampler: Any = None


class TinkerPolicy:
    """A `Policy` at a training service. `start`: the stored state that holds the plan's start adapter."""

    streams = True

    def __init__(
        self, plan: Plan, service: Service, start: str, start_weights: Weights, end_ids: tuple[int, ...], base_sha256: str
    ) -> None:
        assert plan.policy.tinker is not None
        self.plan, self.service, self.base_sha256 = plan, service, base_sha256
        self.start = State(start, False, start_weights)
        sampling = plan.sampling
        self.settings = SamplingSettings(sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens, end_ids)
        self.in_flight = plan.policy.tinker.in_flight
        self.bound = plan.policy.tinker.mismatch or MISMATCH[plan.model.dtype]
        self.reductions = Reductions()
        """What the service makes of a loss; the preflight finds out."""
        self.norm_metric: str | None = None
        """Name under which it tells the norm of the gradient; None: it does not."""
        self.used = Tokens()
        """Tokens that were asked of the service, by the kinds that it bills."""
        self._live: Live | None = None
        self._start_live: Live | None = None
        self.reset()

    def reset(self, optimizer: Adam | None = None) -> None:
        """Back to the start state, with a fresh optimizer."""
        self.adam = optimizer or self.plan.training.optimizer
        self._hold(self.start)

    def _hold(self, state: State) -> None:
        self.drop()
        self.at = state
        self._digest = digest(state.weights)

    def drop(self) -> None:
        """Let go of the clients: what they hold may be nothing known."""
        if self._live is not None and self._live.epoch == self.service.epoch:
            self.service.let_go(self._live.trainer)
        self._live = None

    def live(self) -> Live:
        """Clients that hold the state, made if there are none."""
        if self._live is not None and self._live.epoch != self.service.epoch:
            self._live = None
        if self._live is None:
            trainer = self.service.trainer(self.at.path, optimizer=self.at.optimizer)
            self._live = Live(trainer, self.service.epoch)
        return self._live

    def sampler(self) -> Any:
        """A sampling client that holds the state, proven by a download of what it holds."""
        live = self.live()
        if live.sampler is None:
            if live.sampler_path is None:
                path, weights = self.stored_sampler(live.trainer)
                if digest(weights) != self._digest:
                    self.drop()
                    raise IntegrityError(
                        f"{self.at.path}: what the service holds there is not the adapter that was downloaded from it "
                        f"({digest(weights)[:12]}, not {self._digest[:12]})",
                        hint="Nothing was sampled or trained with it.",
                    )
                live.sampler_path = path
            live.sampler = self.service.client.create_sampling_client(model_path=live.sampler_path)
        return live.sampler

    def stored_sampler(self, trainer: Any) -> tuple[str, Weights]:
        """Store what a training client holds for sampling; (its address, the weights downloaded from there)."""
        path = self.service.wait(trainer.save_weights_for_sampler(unique_name("sampler"), ttl_seconds=KEPT)).path
        return path, self.service.download(path)[0]

    def attempt(self, what: str, work: Callable[[], T]) -> T:
        """`work`, and again with new clients after trouble that passes."""

        def once() -> T:
            try:
                return work()
            except BaseException as error:
                if understand(error) is not None:
                    self.drop()
                raise

        return self.service.do(what, once)

    def prepare(self) -> None:
        """The adapter stored for sampling, and proven to be the one that is held."""
        self._explained("storing an adapter for sampling", lambda: self.attempt("storing an adapter for sampling", self.sampler))

    def _explained(self, what: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except Denied as denied:
            raise EngineFailed(f"{self.service.where}: refused while {what}: {denied}") from None

    # Sampling.

    def sample(
        self, requests: list[SampleRequest], progress: Progress | None = None, taken: Taken | None = None
    ) -> list[SampledTokens]:
        """Sample all requests, many under way at one time: in order, or each given to `taken` when it ends, and none kept.

        Raises `EngineFailed` if the service gives back other than what was asked for, or nothing for too long.
        """
        found: dict[int, SampledTokens] = {}
        self._explained("sampling", lambda: self.stream(requests, self.settings, progress, taken or found.__setitem__))
        return [found[place] for place in range(len(requests))] if taken is None else []

    def stream(
        self, requests: Sequence[SampleRequest], settings: SamplingSettings, progress: Progress | None, taken: Taken
    ) -> None:
        """Every rollout is given to `taken` once. Those that fail are asked for again, with their own seeds."""
        missing = dict.fromkeys(range(len(requests)))
        finished = tokens = 0

        def keep(place: int, answer: Any) -> None:
            nonlocal finished, tokens
            one = checked_rollout(answer, settings, self.service.where)
            del missing[place]
            finished, tokens = finished + 1, tokens + len(one.token_ids)
            self.used += Tokens(prefill=len(requests[place].prompt_ids), sample=len(one.token_ids))
            taken(place, one)
            if progress is not None:
                progress(finished, tokens)

        while missing:
            before = len(missing)
            self.attempt("sampling", lambda: self._round(Round(requests, settings, self.in_flight, keep), list(missing)))
            assert len(missing) < before

    def _round(self, asked: Round, places: Sequence[int]) -> None:
        """Trouble with a rollout ends the round when those under way have ended; it is raised if none came."""
        kept, trouble = asked.ask(self.service, self.sampler(), places)
        if trouble is None:
            return
        found = understand(trouble)
        assert found is not None
        self.service.raise_if_final(found, "sampling")
        if kept == 0:
            raise trouble
        if found.kind == "lost":
            self.service.renew()
        self.drop()

    @property
    def sampling_values(self) -> dict[str, Any]:
        """Every value in effect: the protocol has no field for the others."""
        use = self.settings
        return values_in_effect(use.temperature, use.top_p, use.top_k, use.max_tokens, use.end_ids)

    # Scoring and training.

    def score(self, rows: list[ScoreRow], *, start: bool = False) -> list[np.ndarray]:
        """Raw logprobs (float64, nats) of each row's tokens under the current adapter, or under the starting one."""
        full = [index for index, row in enumerate(rows) if len(row.token_ids)]
        scored: list[np.ndarray] = [np.zeros(0)] * len(rows)
        if full:
            chosen = [rows[index] for index in full]
            found = self._explained("scoring", lambda: self.attempt("scoring", lambda: self._forward(chosen, start)))
            for index, values in zip(full, found, strict=True):
                scored[index] = values
        return scored

    def _forward(self, rows: list[ScoreRow], start: bool) -> list[np.ndarray]:
        trainer = self._start_trainer() if start and self.at is not self.start else self.live().trainer
        output = self.service.wait(trainer.forward(scoring_data(rows), "cross_entropy"))
        self.used += Tokens(prefill=sum(len(row.prompt_ids) + len(row.token_ids) for row in rows))
        return self._logprobs(rows, output)

    def _start_trainer(self) -> Any:
        if self._start_live is None or self._start_live.epoch != self.service.epoch:
            self._start_live = Live(self.service.trainer(self.start.path, optimizer=False), self.service.epoch)
        return self._start_live.trainer

    def _logprobs(self, rows: Sequence[ScoreRow], output: Any) -> list[np.ndarray]:
        try:
            return token_logprobs(rows, output)
        except ValueError as error:
            raise EngineFailed(f"{self.service.where}: {error}") from None

    def update(self, rows: list[TrainRow], learning_rate: float) -> UpdateStats:
        """One Adam step there on -sum(weight * ratio) over all rows; none if no token has a weight."""
        numbers = [number for number, row in enumerate(rows) if np.any(row.weights)]
        weighted = [weighted_part(rows[number]) for number in numbers]
        if not weighted:
            return UpdateStats(loss=0.0, grad_norm=0.0, tokens=0, stepped=False, mismatch=mismatch(np.zeros(0), np.zeros(0)))
        return self._explained(
            "training", lambda: self.attempt("training", lambda: self._update(weighted, numbers, learning_rate))
        )

    def _update(self, rows: list[TrainRow], numbers: list[int], learning_rate: float) -> UpdateStats:
        trainer, tokens = self.live().trainer, sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)
        if all(np.isfinite(row.sampler_logprobs[row.weights != 0]).all() for row in rows):
            output = self.service.wait(trainer.forward_backward(training_data(rows, self.reductions), "importance_sampling"))
            self.used += Tokens(train=tokens)
        else:  # there is no gradient to step on: the trainer's logprobs alone are wanted
            output = self.service.wait(trainer.forward(scoring_data(rows), "cross_entropy"))
            self.used += Tokens(prefill=tokens)
        masks = [row.weights != 0 for row in rows]
        trainer_K = np.concatenate([own[mask] for own, mask in zip(self._logprobs(rows, output), masks, strict=True)])
        sampler_K = np.concatenate([row.sampler_logprobs[mask] for row, mask in zip(rows, masks, strict=True)])
        weights_K = np.concatenate([row.weights[mask] for row, mask in zip(rows, masks, strict=True)])
        numbers_K = np.repeat(numbers, [int(mask.sum()) for mask in masks])
        broken_K = ~np.isfinite(trainer_K - sampler_K)
        loss = math.nan if broken_K.any() else -float((weights_K * np.exp(trainer_K - sampler_K)).sum())
        norm, stepped = None, False
        if math.isfinite(loss):
            norm, stepped = self._step(trainer, learning_rate)
        else:
            self.drop()  # it holds a gradient that is not finite
        return UpdateStats(
            loss=loss,
            grad_norm=norm,
            tokens=len(trainer_K),
            stepped=stepped,
            mismatch=mismatch(trainer_K, sampler_K),
            nonfinite_rows=tuple(sorted({int(one) for one in numbers_K[broken_K]})),
        )

    def _step(self, trainer: Any, learning_rate: float) -> tuple[float | None, bool]:
        """(norm of the gradient or None, whether the step was taken). A step to weights that are not finite is not."""
        try:
            told = self.service.wait(trainer.optim_step(adam_params(self.adam, learning_rate))).metrics or {}
        except ValueError as error:
            if not unreadable_metric(error):
                raise
            self.drop()
            return math.nan, False
        norm = told.get(self.norm_metric) if self.norm_metric is not None else None
        path = self.service.wait(trainer.save_state(unique_name("state"))).path
        sampler_path, weights = self.stored_sampler(trainer)
        if not all_finite(weights) or (norm is not None and not math.isfinite(norm)):
            self.drop()
            return norm, False
        self.at, self._digest = State(path, True, weights), digest(weights)
        self._live = Live(trainer, self.service.epoch, sampler_path)
        return norm, True

    # Saving and loading.

    def save(self, folder: Path) -> None:
        """The downloaded adapter in peft's format, and where at the service the state is. Adam's moments stay there."""
        write_adapter(folder, self.at.weights, self.plan)
        assert self.plan.policy.tinker is not None
        write_json(
            folder / STATE_FILE,
            {
                "state": self.at.path,
                "optimizer": "stored with the state" if self.at.optimizer else "fresh",
                "base_model": self.plan.policy.tinker.base_model,
                "adapter_sha256": self._digest,
            },
        )

    def load(self, folder: Path, optimizer: Adam | None = None) -> None:
        """Go on from what `save` wrote: the service's state, which is compared with the adapter before it is used.

        Where the service does not give it back, what was held before is held on.
        """
        path = folder / STATE_FILE
        try:
            stored = parse_json(path.read_bytes())
            state, kind, own = stored["state"], stored["optimizer"], stored["adapter_sha256"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{path}: does not say where the service's state is: {error!r}") from None
        weights = from_folder(folder)
        if digest(weights) != own:
            raise IntegrityError(f"{folder}: its adapter is not the one that {STATE_FILE} was written with")
        before = self.at, self.adam
        self.adam = optimizer or self.plan.training.optimizer
        self._hold(State(state, kind != "fresh", weights))
        try:
            self.attempt("going on from a stored state", self.sampler)
        except Denied as denied:
            held, self.adam = before
            self._hold(held)
            raise IntegrityError(
                f"{path}: the service does not give back the state of this checkpoint: {denied}",
                hint="States there can expire or be deleted. Without it the optimizer is gone, and the arm cannot be continued.",
            ) from None

    def load_adapter(self, folder: Path) -> None:
        """Refused: a service takes no adapter from outside."""
        raise UsageError(f"{folder}: a training service takes no adapter that something else trained")

    def adapter_sha256(self) -> str:
        """Digest of the weights that were downloaded from the state that is held."""
        return self._digest

    @property
    def context(self) -> None:
        """Not told by the protocol for every service."""
        return None

    def engine_record(self) -> dict[str, Any]:
        """What can move a float or a choice: a run does not go on under another."""
        from importlib.metadata import version

        assert self.plan.policy.tinker is not None
        return {
            "name": "tinker",
            "tinker": version("tinker"),
            "base_model": self.plan.policy.tinker.base_model,
            "reduction": self.reductions.record(),
        }

    def close(self) -> None:
        """Let go of what the service holds for this run; stored states stay."""
        self.drop()
        if self._start_live is not None and self._start_live.epoch == self.service.epoch:
            self.service.let_go(self._start_live.trainer)
        self._start_live = None
        self.service.close()


def weighted_part(row: TrainRow) -> TrainRow:
    """The row up to its last weighted token: what comes later changes nothing before it."""
    end = int(np.flatnonzero(row.weights)[-1]) + 1
    return TrainRow(row.prompt_ids, row.token_ids[:end], row.sampler_logprobs[:end], row.weights[:end])


def adam_params(adam: Adam, learning_rate: float) -> Any:
    """The plan's Adam in the protocol's fields. Clipping is asked for only where the plan clips."""
    from tinker import types

    clip = {} if adam.max_grad_norm is None else {"grad_clip_norm": adam.max_grad_norm}
    return types.AdamParams(
        learning_rate=learning_rate,
        beta1=adam.beta1,
        beta2=adam.beta2,
        eps=adam.eps,
        weight_decay=adam.weight_decay,
        **clip,
    )
