"""What a policy is: something that samples, scores, updates, saves and loads. It never sees a rule or a grade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ablation.plan.arms import Adam


@dataclass(frozen=True)
class SampleRequest:
    """One rollout to sample: prompt ids in, and a seed that depends on nothing but what the rollout is."""

    prompt_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class SampledTokens:
    """One sampled rollout of T tokens; every array has length T.

    `logprobs` are raw: of the full vocabulary at temperature 1, whatever the sampling values were.
    `top_entropy` is the entropy (nats) of the renormalized most likely tokens, `top_mass` the probability they hold.
    """

    token_ids: np.ndarray
    logprobs: np.ndarray
    top_entropy: np.ndarray
    top_mass: np.ndarray
    finish_reason: str  # "stop" | "length"
    stop_id: int | None = None  # the end token that it stopped at, by the engine's word; None where it was cut


def not_as_asked(token_ids: np.ndarray, finish_reason: str, end_ids: tuple[int, ...], max_tokens: int) -> str | None:
    """What of a rollout that an engine or a service gave back is not what was asked for, in words; None if nothing is."""
    count = len(token_ids)
    ended = bool(count) and int(token_ids[-1]) in end_ids
    if not 1 <= count <= max_tokens:
        return f"{count} tokens where 1 to {max_tokens} were asked for"
    if finish_reason == "stop" and not ended:
        return "a rollout that stopped without one of the plan's end tokens, or its end token was left out"
    if finish_reason == "length" and count < max_tokens:
        return f"a rollout cut off at {count} of {max_tokens} tokens"
    if finish_reason not in ("stop", "length"):
        return f"a rollout that ended for the reason `{finish_reason}`"
    if np.isin(token_ids[:-1], end_ids).any():
        return "a rollout that went on after an end token"
    return None


@dataclass(frozen=True)
class ScoreRow:
    """A prompt and the tokens that followed it, whose logprobs are asked for."""

    prompt_ids: tuple[int, ...]
    token_ids: np.ndarray


@dataclass(frozen=True)
class TrainRow(ScoreRow):
    """A rollout in an update: one weight per sampled token, beside the sampler's raw logprobs."""

    sampler_logprobs: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class UpdateStats:
    """What one optimizer step was made of."""

    loss: float
    grad_norm: float | None  # None: a service does not tell it
    tokens: int  # tokens with a non-zero weight
    stepped: bool  # False: no token had a weight, or loss, gradient or what the step would lead to is not finite
    mismatch: dict[str, float]  # trainer against sampler logprobs on the weighted tokens
    nonfinite_rows: tuple[int, ...] = ()  # rows of the update with a weighted token whose logprob, either one, is not finite
    entropy: float | None = None  # nats: mean top-20 entropy of the weighted tokens under the trainer, before the step


Progress = Callable[[int, int], None]
"""Called with (rollouts finished so far, tokens sampled so far) of what was asked for."""
Taken = Callable[[int, SampledTokens], None]
"""Called with the place of a request and its rollout, once for each, as soon as it ended."""


class Policy(Protocol):
    """One adapter on one frozen base. Implementations: `LocalPolicy`, `VllmPolicy`, `TinkerPolicy`."""

    streams: bool
    """True: it is asked for all rollouts of a stage together, and hands each over when it ends. False: it is asked for the
    plan's batch, because what it samples depends, by last bits, on what is sampled beside it."""

    @property
    def sampling_values(self) -> dict[str, Any]:
        """Every value in effect when it samples for the plan, made by `rollouts.values.values_in_effect`."""

    def prepare(self) -> None:
        """Do what takes time before a first token can be sampled, so that it does not count as sampling."""

    def reset(self, optimizer: Adam | None = None) -> None:
        """Back to the starting adapter with a fresh optimizer: the plan's, or another one."""

    def sample(
        self, requests: list[SampleRequest], progress: Progress | None = None, taken: Taken | None = None
    ) -> list[SampledTokens]:
        """Sample all requests. They come back in order, or, given to `taken` one by one, not at all: nothing is kept then."""

    def score(self, rows: list[ScoreRow], *, start: bool = False) -> list[np.ndarray]:
        """Raw logprobs (float64, nats) of each row's tokens under the current adapter, or under the starting one."""

    def update(self, rows: list[TrainRow], learning_rate: float) -> UpdateStats:
        """One optimizer step on the sum over tokens of -weight * ratio."""

    def save(self, folder: Path) -> None:
        """Write adapter and optimizer state into an existing empty folder."""

    def load(self, folder: Path, optimizer: Adam | None = None) -> None:
        """Read what `save` wrote, for the plan's optimizer or another one; the next step continues bit for bit."""

    def load_adapter(self, folder: Path) -> None:
        """Read an adapter that something else trained; the optimizer is at its start."""

    def adapter_sha256(self) -> str:
        """Digest of the current adapter's weights."""
