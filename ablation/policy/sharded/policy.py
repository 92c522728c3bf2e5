"""A policy that several processes hold together, as the runner sees it: every call is one that all of them make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ablation.plan.arms import Adam
from ablation.plan.model import Plan
from ablation.policy.base import Progress, SampledTokens, SampleRequest, ScoreRow, Taken, TrainRow, UpdateStats
from ablation.policy.sharded.group import SILENT_SECONDS, Group
from ablation.policy.sharded.joined import Joined, under_torchrun
from ablation.policy.sharded.serve import ToLoad
from ablation.rollouts.values import values_in_effect


class ShardedPolicy:
    """As `LocalPolicy`; nothing of the model is in this process."""

    streams = False

    def __init__(
        self,
        processes: int,
        plan: Plan,
        base: Path,
        start_adapter: Path,
        end_ids: tuple[int, ...],
        pad_id: int,
        dtype: str | None = None,
        *,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        import torch

        torch.set_num_threads(plan.policy.threads)  # each process's; the journal asks this one
        self.plan, self.processes = plan, processes
        self._end_ids = end_ids
        load = ToLoad(plan, base, start_adapter, end_ids, pad_id, dtype)
        self.group = Joined(processes, load) if under_torchrun() else Group(processes, load, silent_seconds=silent_seconds)

    def record(self) -> dict[str, Any]:
        """For the journal."""
        loaded = self.group.loaded
        return {"processes": {"count": self.processes, "backend": loaded.backend, "devices": loaded.devices}}

    @property
    def base_sha256(self) -> str:
        return self.group.loaded.base_sha256

    @property
    def context(self) -> int | None:
        """Most tokens, prompt included, that the model was made for; None if it does not say."""
        return self.group.loaded.context

    @property
    def embeddings(self) -> int:
        """Rows of the embedding: ids are below it."""
        return self.group.loaded.embeddings

    @property
    def sampling_values(self) -> dict[str, Any]:
        """Every value in effect."""
        sampling = self.plan.sampling
        return values_in_effect(sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens, self._end_ids)

    def prepare(self) -> None:
        """Nothing: the model is there."""

    def self_test(self) -> None:
        """Raise `IntegrityError` if this model does not compute here what a run takes for granted; see `selftest`."""
        self.group.ask("self_test")

    def reset(self, optimizer: Adam | None = None) -> None:
        self.group.ask("reset", optimizer)

    def sample(
        self, requests: list[SampleRequest], progress: Progress | None = None, taken: Taken | None = None
    ) -> list[SampledTokens]:
        """Sample all requests as one batch, which every process computes whole."""
        sampled = self.group.ask("sample", requests, told=progress)
        if progress is not None:
            progress(len(sampled), sum(len(one.token_ids) for one in sampled))
        if taken is None:
            return sampled
        for place, one in enumerate(sampled):
            taken(place, one)
        return []

    def score(self, rows: list[ScoreRow], *, start: bool = False) -> list[np.ndarray]:
        return self.group.ask("score", rows, start=start)

    def update(self, rows: list[TrainRow], learning_rate: float) -> UpdateStats:
        return self.group.ask("update", rows, learning_rate)

    def save(self, folder: Path) -> None:
        self.group.ask("save", folder)

    def save_adapter(self, folder: Path) -> None:
        self.group.ask("save_adapter", folder)

    def load(self, folder: Path, optimizer: Adam | None = None) -> None:
        self.group.ask("load", folder, optimizer)

    def load_adapter(self, folder: Path) -> None:
        self.group.ask("load_adapter", folder)

    def adapter_sha256(self) -> str:
        return self.group.ask("adapter_sha256")

    # For a preflight: `policy.probes`.

    def keep_weights(self) -> None:
        self.group.ask("keep_weights")

    def put_back_weights(self) -> None:
        self.group.ask("put_back_weights")

    def zero_weights(self) -> None:
        self.group.ask("zero_weights")

    def made_up_weights(self, target: str, size: float) -> None:
        self.group.ask("made_up_weights", target, size)

    def logits(self, ids: list[int], start: int) -> np.ndarray:
        return self.group.ask("logits", ids, start)

    def step_aside(self) -> None:
        self.group.ask("step_aside")

    def come_back(self) -> None:
        self.group.ask("come_back")

    def close(self) -> None:
        """End the processes, or let go of those that torchrun started."""
        self.group.close()
