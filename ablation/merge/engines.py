"""The same tokens by another engine, vLLM: what of a difference is the engines' own, and whether vLLM loads the folder at all."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import EngineFailed
from ablation.files import parse_json
from ablation.plan.model import Plan
from ablation.plan.model_files import BASE_CONFIG
from ablation.policy.base import SampledTokens, SampleRequest, ScoreRow
from ablation.policy.decoding import Decoding

NOT_INSTALLED = "vLLM is not installed here"
LEFT_OUT = "left out by --engine transformers"
SEQUENCES = 8
_BLOCK = 128
"""Tokens of a block of keys and values on a CPU; a GPU's are smaller."""


def vllm_is_here() -> bool:
    return find_spec("vllm") is not None


class InVllm:
    """One model folder in vLLM's engine, in a process of its own, without any adapter. `close` ends it."""

    def __init__(self, folder: Path, plan: Plan, longest: int, dtype: str | None = None) -> None:
        """`longest`: tokens of a prompt and what follows it. `dtype`: left out, the plan's; `auto`: that of the folder's config.

        Raises `UsageError` with vLLM's reason if it does not take the folder.
        """
        from ablation.policy.vllm.client import EngineClient
        from ablation.policy.vllm.messages import EngineSettings

        vllm, most = plan.policy.vllm, _context(folder)
        self.top = plan.sampling.top_logprobs
        self.client = EngineClient(
            EngineSettings(
                model=str(folder),
                dtype=dtype or plan.model.dtype,
                context=longest + 1 if most is None else min(longest + 1, most),  # a text that is scored gets one token more
                sequences=SEQUENCES,
                batch_tokens=max(2048, longest + 1),
                kv_cache_bytes=_kv_bytes(folder, longest),
                tensor_parallel=1 if vllm is None else vllm.tensor_parallel,
                eager=True,
                threads=plan.policy.threads,
                lora_rank=0,
                top_logprobs=self.top,
            )
        )

    @property
    def version(self) -> str:
        return str(self.client.facts["vllm"])

    def score(self, rows: Sequence[ScoreRow]) -> list[np.ndarray]:
        """Raw logprobs (float64, nats) of each row's tokens."""
        from ablation.policy.vllm.messages import Score

        asked = [
            (place, (*row.prompt_ids, *(int(one) for one in row.token_ids)), len(row.prompt_ids))
            for place, row in enumerate(rows)
        ]
        found = self._ask(Score(asked))
        return [found[place] for place in range(len(rows))]

    def sample(self, requests: list[SampleRequest], decoding: Decoding) -> list[SampledTokens]:
        """One rollout for each request."""
        from ablation.policy.vllm.messages import Finished, Sample, SamplingValues

        values = SamplingValues(
            decoding.temperature, decoding.top_p, decoding.top_k, decoding.max_tokens, self.top, decoding.end_ids
        )
        found: dict[int, SampledTokens] = {}

        def told(message: Any) -> None:
            if isinstance(message, Finished):
                found[message.key] = SampledTokens(
                    message.token_ids,
                    message.logprobs,
                    message.top_entropy,
                    message.top_mass,
                    message.finish_reason,
                    message.stop_id,
                )

        self._ask(Sample([(place, one.prompt_ids, one.seed) for place, one in enumerate(requests)], values, None), told)
        return [found[place] for place in range(len(requests))]

    def _ask(self, request: Any, told: Any = None) -> Any:
        from ablation.policy.vllm.client import EngineRefused

        try:
            return self.client.ask(request, told)
        except EngineRefused as refused:
            raise EngineFailed(f"vLLM's engine refused: {refused}") from None

    def close(self) -> None:
        self.client.close()


def _context(folder: Path) -> int | None:
    """Most tokens that the model was made for; None if its config does not say."""
    try:
        config = parse_json((folder / BASE_CONFIG).read_bytes())
        found = (config.get("text_config") or config).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return found if type(found) is int and found > 0 else None


def _kv_bytes(folder: Path, longest: int) -> int:
    """Memory for keys and values of a few rollouts of `longest` tokens, from the folder's config (or a guess without one)."""
    try:
        config = parse_json((folder / BASE_CONFIG).read_bytes())
        config = config.get("text_config") or config
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        of_token = 2 * int(config["num_hidden_layers"]) * int(heads) * int(size) * 4
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 4 * 10**9
    blocks = -(-(longest + 1) // _BLOCK) * _BLOCK
    return max(5 * 10**7, (SEQUENCES + 1) * blocks * of_token)
