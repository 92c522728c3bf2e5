"""What the runner and the engine's process say to each other: plain data, so that neither needs the other's libraries.

Each message is one frame of a `multiprocessing.connection.Connection`. The runner sends a request, the process answers with
any number of `Alive` and `Finished`, and one `Done` or `Failed` at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class EngineSettings:
    """Everything that an engine is started with; nothing is left to its defaults that could move a result."""

    model: str
    dtype: str
    context: int | None
    sequences: int
    batch_tokens: int
    kv_cache_bytes: int
    tensor_parallel: int
    eager: bool
    threads: int
    lora_rank: int  # 0: no adapter can be loaded
    top_logprobs: int
    seed: int = 0
    generation_config: str = "vllm"  # the model folder's is not read
    logprobs_mode: str = "raw_logprobs"
    prefix_caching: bool = False
    sleep: bool = False  # whether it can be put to sleep: that needs another allocator
    devices: str | None = None  # CUDA_VISIBLE_DEVICES of the process; None: as they are here
    cores: tuple[int, ...] = ()  # the only ones that the process may use; (): as here


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in a folder; name and id come from its digest, so two adapters never share either."""

    name: str
    number: int
    folder: str


@dataclass(frozen=True)
class SamplingValues:
    """Every value that shapes what is sampled. Those without a field in the plan are neutral."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    top_logprobs: int
    end_ids: tuple[int, ...]
    min_p: float = 0.0
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    ignore_eos: bool = True  # the model's own end token ends nothing unless the plan names it

    def record(self) -> dict[str, Any]:
        """What is stored of them beside the plan's own values."""
        names = ("min_p", "min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty", "ignore_eos")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Sample:
    """Sample one rollout for each (key, prompt ids, seed)."""

    rows: list[tuple[int, tuple[int, ...], int]]
    values: SamplingValues
    adapter: Adapter | None


@dataclass(frozen=True)
class Score:
    """The base's raw logprobs of given tokens: for each (key, ids, first) those of `ids[first:]`, as key -> float64 array."""

    rows: list[tuple[int, tuple[int, ...], int]]


@dataclass(frozen=True)
class Load:
    """Load an adapter and drop every other one."""

    adapter: Adapter


@dataclass(frozen=True)
class Sleep:
    """Drop the adapter, give back the memory of the device and keep the base's weights in the host's."""


@dataclass(frozen=True)
class Wake:
    """Take the memory again. No adapter is loaded then."""


@dataclass(frozen=True)
class Close:
    """End the process."""


@dataclass(frozen=True)
class Alive:
    """Sent about once a second while the engine works."""

    finished: int
    tokens: int


@dataclass(frozen=True)
class Finished:
    """A rollout of T tokens: ids and raw logprobs, and of the most likely tokens the entropy (nats) and the probability."""

    key: int
    token_ids: np.ndarray
    logprobs: np.ndarray
    top_entropy: np.ndarray
    top_mass: np.ndarray
    finish_reason: str
    stop_id: int | None
    tokens: int  # sampled so far by the whole request
    finished: int


@dataclass(frozen=True)
class Done:
    """The request is carried out."""

    value: Any = None


@dataclass(frozen=True)
class Failed:
    """It is not: the engine refused or broke. `fatal`: the process ends."""

    doing: str
    kind: str
    message: str
    fatal: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
