"""A rollout as a server sends it, event by event: taken only if it is, in every number, what was asked for."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ablation.policy.vllm.messages import Adapter, Finished, SamplingValues
from ablation.policy.vllm.server_http import Passing
from ablation.policy.vllm.top import entropy_and_mass

GENERATE = "/inference/v1/generate"
"""Token ids in, token ids out. `/v1/completions` would take the values of the model folder's generation_config for what a request
leaves out, add its stop ids to those of the request, and give the most likely tokens by their text."""
TOKENS_AT_ONCE = 64
"""New tokens of a rollout that come in one event."""
NO_LOGPROB = -9999.0
"""What vLLM sends in place of a logprob that is infinite, not a number or not there."""
_LARGEST_ID = 2**31
_SLACK = 1e-3
"""A logprob is at most 0, but for rounding."""
_MASS_SLACK = 1e-2
"""Probabilities of different tokens add up to 1 at most, but for rounding."""
_LEAST = -1e30
"""No logprob is below; it is a number in float32."""


def generate_request(model: str, prompt: tuple[int, ...], seed: int, values: SamplingValues, salt: str) -> dict[str, Any]:
    """The body for one rollout, with every value written out. `salt` keeps what is cached of a prompt to those that have it."""
    return {
        "model": model,
        "token_ids": list(prompt),
        "sampling_params": {
            "n": 1,
            "seed": seed,
            "temperature": values.temperature,
            "top_p": values.top_p,
            "top_k": values.top_k,
            "min_p": values.min_p,
            "repetition_penalty": values.repetition_penalty,
            "presence_penalty": values.presence_penalty,
            "frequency_penalty": values.frequency_penalty,
            "min_tokens": values.min_tokens,
            "max_tokens": values.max_tokens,
            "stop": [],
            "stop_token_ids": list(values.end_ids),
            "ignore_eos": values.ignore_eos,
            # vLLM sends the sampled token first and so many in all: one more, or the last of the most likely ones is missing.
            "logprobs": values.top_logprobs + 1,
            "detokenize": False,
            "watermarking": False,
            "stream_interval": TOKENS_AT_ONCE,
        },
        "cache_salt": salt,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def salt_of(adapter: Adapter | None, run: str) -> str:
    """Different for each adapter and each client."""
    return f"{run}-{'base' if adapter is None else adapter.name}"


class Reply:
    """One rollout that comes in."""

    def __init__(self, key: int, prompt: tuple[int, ...], values: SamplingValues, vocabulary: int) -> None:
        """`vocabulary`: ids of tokens are below it."""
        self.key, self.prompt, self.values, self._vocabulary = key, prompt, values, vocabulary
        self.token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._top: list[list[float]] = []
        self._echoed = self._counted = False
        self.finish_reason: str | None = None
        self.stop_id: int | None = None

    def take(self, event: Any) -> int:
        """Keep what is in `event`. Returns how many new tokens are. Raises `Passing` if it is not what was asked for."""
        if not isinstance(event, dict) or not isinstance(event.get("choices"), list):
            raise Passing("the server sent an event without choices")
        echo = event.get("prompt_token_ids")
        if echo is not None:
            if echo != list(self.prompt):
                raise Passing("the server sampled after another prompt than the one that it was given")
            self._echoed = True
        usage = event.get("usage")
        if usage is not None:
            self._check_usage(usage)
        if not event["choices"]:
            return 0
        choice = event["choices"][0]
        if len(event["choices"]) != 1 or not isinstance(choice, dict) or choice.get("index") != 0:
            raise Passing("the server sent other than the one rollout that was asked for")
        if self.finish_reason is not None:
            raise Passing("the server went on with a rollout that had ended")
        count = self._take_tokens(choice)
        reason, stop = choice.get("finish_reason"), choice.get("stop_reason")
        if reason is not None:
            if not isinstance(reason, str) or not re.fullmatch(r"[a-z_]{1,20}", reason):
                raise Passing("the server ended a rollout for a reason that is none")
            self.finish_reason = reason
            self.stop_id = stop if isinstance(stop, int) and not isinstance(stop, bool) else None
        return count

    def _check_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            raise Passing("the server's count of tokens is none")
        found = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if found != (len(self.prompt), len(self.token_ids)):
            raise Passing(
                f"the server counts {_number(found[0])} tokens of the prompt and {_number(found[1])} sampled ones; it was given "
                f"{len(self.prompt)} and sent {len(self.token_ids)}"
            )
        self._counted = True

    def _take_tokens(self, choice: dict[str, Any]) -> int:
        ids, told = choice.get("token_ids") or [], choice.get("logprobs") or {}
        content = (told.get("content") if isinstance(told, dict) else None) or []
        if not isinstance(ids, list) or not isinstance(content, list) or len(content) != len(ids):
            raise Passing(f"{_count(ids)} tokens came with logprobs of {_count(content)}")
        if len(self.token_ids) + len(ids) > self.values.max_tokens:
            raise Passing(f"more came than the {self.values.max_tokens} tokens of `max_tokens`")
        for token, place in zip(ids, content, strict=True):
            self._take_token(token, place)
        return len(ids)

    def _take_token(self, token: Any, place: Any) -> None:
        if not _is_id(token):
            raise Passing("the server sent a token id that is none")
        if token >= self._vocabulary:
            raise Passing(f"the server sampled token {token}, and the model has {self._vocabulary}: it is another model")
        if not isinstance(place, dict) or place.get("token_id") != token:
            raise Passing("the logprobs are of other tokens than those that were sampled")
        logprob, top = place.get("logprob"), place.get("top_logprobs")
        if not _is_logprob(logprob) or logprob <= NO_LOGPROB:
            raise Passing(f"a sampled token came with {_number(logprob)} as its logprob")
        wanted = self.values.top_logprobs + 1
        if not isinstance(top, list) or len(top) != wanted:
            raise Passing(f"a token came with {_count(top)} logprobs of likely ones; {wanted} were asked for")
        likely: dict[int, float] = {}
        for one in top:
            if not isinstance(one, dict) or not _is_id(one.get("token_id")) or not _is_logprob(one.get("logprob")):
                raise Passing("a logprob of a likely token is none")
            likely[one["token_id"]] = one["logprob"]
        if len(likely) != wanted or likely.get(token) != logprob:
            raise Passing("the logprobs of likely tokens leave out the sampled one, or have one twice")
        mass = math.fsum(map(math.exp, likely.values()))
        if mass > 1 + _MASS_SLACK:
            raise Passing(f"the probabilities of likely tokens add up to {mass:.3g}")
        self.token_ids.append(token)
        self._logprobs.append(logprob)
        self._top.append(sorted(likely.values(), reverse=True)[: self.values.top_logprobs])

    @property
    def all_likeliest(self) -> bool:
        """Whether no other token was likelier than a sampled one."""
        return all(logprob >= top[0] for logprob, top in zip(self._logprobs, self._top, strict=True))

    def finished(self, tokens: int, finished: int) -> Finished:
        """The whole rollout. Raises `Passing` if something of it is missing."""
        if self.finish_reason is None:
            raise Passing(f"the answer broke off after {len(self.token_ids)} tokens")
        if not self._echoed or not self._counted:
            raise Passing("the server left out the prompt's token ids or its count of tokens, which were asked for")
        if not self.token_ids:
            raise Passing("a rollout came without a token")
        top_Tk = np.array(self._top, dtype=np.float32).reshape(len(self.token_ids), self.values.top_logprobs)
        entropy_T, mass_T = entropy_and_mass(top_Tk)
        return Finished(
            key=self.key,
            token_ids=np.array(self.token_ids, dtype=np.int64),
            logprobs=np.array(self._logprobs, dtype=np.float32),
            top_entropy=entropy_T,
            top_mass=mass_T,
            finish_reason=self.finish_reason,
            stop_id=self.stop_id,
            tokens=tokens,
            finished=finished,
        )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_ID


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _LEAST <= value <= _SLACK


def _number(value: Any) -> str:
    """Of a server's numbers the beginning, and of its words none."""
    return repr(value)[:20] if isinstance(value, int | float) else f"`{type(value).__name__}`"


def _count(value: Any) -> str:
    return str(len(value)) if isinstance(value, list) else "no"
