"""Rollouts from a service: single requests, many under way at one time, each with its own seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablation.errors import EngineFailed
from ablation.policy.base import SampledTokens, SampleRequest, not_as_asked
from ablation.policy.tinker.service import LOOK, Service
from ablation.policy.tinker.trouble import understand

SEEDS = 2**31
"""A service's seed is the rollout's modulo this: what every server takes."""


@dataclass(frozen=True)
class SamplingSettings:
    """What a request says beside prompt and seed."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    end_ids: tuple[int, ...]

    def params(self, seed: int) -> Any:
        from tinker import types

        return types.SamplingParams(
            max_tokens=self.max_tokens,
            seed=seed % SEEDS,
            stop=list(self.end_ids),
            temperature=self.temperature,
            top_k=self.top_k or -1,
            top_p=self.top_p,
        )


@dataclass(frozen=True)
class Round:
    """What is asked for, and who keeps what comes: `keep(place, answer)`."""

    requests: Sequence[SampleRequest]
    settings: SamplingSettings
    in_flight: int
    keep: Callable[[int, Any], None]

    def ask(self, service: Service, sampler: Any, places: Sequence[int]) -> tuple[int, BaseException | None]:
        """Ask for the rollouts at `places`. (How many came, the last trouble of the service with one of the others.)

        After trouble nothing more is asked for; those under way are waited for.
        """
        from tinker import types

        waiting = iter(places)
        pending: dict[Future, int] = {}
        trouble: BaseException | None = None
        kept, away, quiet = 0, 0.0, time.monotonic()
        while True:
            while trouble is None and len(pending) < self.in_flight and (place := next(waiting, None)) is not None:
                request = self.requests[place]
                prompt = types.ModelInput.from_ints(list(request.prompt_ids))
                pending[sampler.sample(prompt, 1, self.settings.params(request.seed))] = place
            if not pending:
                return kept, trouble
            done, _ = wait(pending, timeout=LOOK, return_when=FIRST_COMPLETED)
            if not done:
                away = 0.0 if service.there() else away + LOOK
                service.check_patience(away, time.monotonic() - quiet)
                continue
            away, quiet = 0.0, time.monotonic()
            for future in done:
                place, error = pending.pop(future), future.exception()
                if error is None:
                    self.keep(place, future.result())
                    kept += 1
                elif understand(error) is None:
                    raise error
                else:
                    trouble = error


def checked_rollout(answer: Any, settings: SamplingSettings, where: str) -> SampledTokens:
    """The rollout, if it is what was asked for. A service tells nothing of other tokens than the sampled one: no entropy."""
    if len(answer.sequences) != 1:
        raise EngineFailed(f"{where}: {len(answer.sequences)} rollouts where one was asked for")
    one, wrong = answer.sequences[0], None
    tokens, logprobs = np.asarray(one.tokens, dtype=np.int32), one.logprobs
    count = len(tokens)
    ended = bool(count) and int(tokens[-1]) in settings.end_ids
    if logprobs is None or len(logprobs) != count:
        wrong = f"{count} tokens with {'no' if logprobs is None else len(logprobs)} logprobs"
    else:
        wrong = not_as_asked(tokens, one.stop_reason, settings.end_ids, settings.max_tokens)
    if wrong:
        raise EngineFailed(f"{where}: {wrong}", hint="Nothing of this rollout is kept.")
    unknown = np.full(count, np.nan)
    finish = "stop" if ended else "length"
    stop_id = int(tokens[-1]) if ended else None
    return SampledTokens(tokens, np.asarray(logprobs, dtype=np.float64), unknown, unknown, finish, stop_id)
