"""What is sampled to compare the engine with the trainer: a few tokens after ends of the plan's own prompts.

Made-up prompts would not do: what follows them has logprobs far from 0, where bfloat16 is coarse, and a mismatch that matters
would hide in that. The engine samples and the trainer scores, because vLLM's logprobs of a given text go another way than those
of a sampled token, and that way breaks with an adapter on lm_head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablation.policy.base import ScoreRow
from ablation.policy.vllm.messages import SamplingValues

PROMPT_TOKENS = 48
CANARY_TEXTS, CANARY_TOKENS = 2, 8
"""Sampled after every change of the adapter, when it costs time."""
PROBE = {"temperature": 0.7, "top_p": 0.95, "top_k": 5}
"""Not neutral, so that logprobs after temperature, top-p and top-k are not mistaken for raw ones."""
UNSURE = {"temperature": 2.0, "top_p": 1.0, "top_k": 20}
"""Tokens that the model is not sure of, as they come after a text that breaks off, show every change of its weights."""


def probe_values(tokens: int, top_logprobs: int, *, unsure: bool = False) -> SamplingValues:
    """Sampling of exactly `tokens` tokens that shows which kind of logprobs comes back."""
    return SamplingValues(**(UNSURE if unsure else PROBE), max_tokens=tokens, top_logprobs=top_logprobs, end_ids=())


def prompt_ends(prompts: Sequence[Sequence[int]], count: int) -> list[tuple[int, ...]]:
    """Up to `count` different ends, spread over the prompts."""
    ends = list(dict.fromkeys(tuple(prompt[-PROMPT_TOKENS:]) for prompt in prompts))
    return ends if len(ends) <= count else [ends[len(ends) * place // count] for place in range(count)]


def broken_off(prompts: Sequence[Sequence[int]], count: int) -> list[tuple[int, ...]]:
    """As `prompt_ends`, without the second half of each end: what a user wrote, and no template that the model knows by heart."""
    return [end[: -(len(end) // 2)] if len(end) > 1 else end for end in prompt_ends(prompts, count)]


@dataclass(frozen=True)
class Compared:
    """The same tokens (K in all) by the engine, which sampled them, and by the trainer; raw logprobs in nats."""

    rows: tuple[ScoreRow, ...]
    sampler: np.ndarray
    trainer: np.ndarray
    processed: bool = False  # the probed values took all probability from the other tokens: logprobs are not raw
    copies: int = 1  # row i was sampled by engine i mod `copies`

    @property
    def mismatch(self) -> float:
        """Mean absolute difference, of the engine where it is largest; infinite if a logprob is not finite."""
        found = max(float(np.abs(one.sampler - one.trainer).mean()) for one in self.engines())
        return found if np.isfinite(found) else float("inf")

    def engines(self) -> list[Compared]:
        """The part of each engine."""
        if self.copies == 1:
            return [self]
        owner_K = np.repeat(np.arange(len(self.rows)) % self.copies, [len(row.token_ids) for row in self.rows])
        return [
            Compared(self.rows[number :: self.copies], self.sampler[owner_K == number], self.trainer[owner_K == number])
            for number in range(self.copies)
        ]


@dataclass(frozen=True)
class Probed:
    """What the engine sampled, with its raw logprobs row by row; see `Compared`."""

    rows: tuple[ScoreRow, ...]
    logprobs: tuple[np.ndarray, ...]
    processed: bool
    copies: int

    def against(self, scored: list[np.ndarray]) -> Compared:
        """Beside what the trainer says of the same rows."""
        return Compared(self.rows, np.concatenate(self.logprobs), np.concatenate(scored), self.processed, self.copies)
