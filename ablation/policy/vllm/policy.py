"""Samples with vLLM; scores, trains, saves and loads with the local policy, whose adapter is handed over before it samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ablation.errors import EngineFailed, IntegrityError, UsageError
from ablation.files import parse_json
from ablation.plan.arms import Adam
from ablation.plan.model import Plan
from ablation.plan.model_files import BASE_CONFIG
from ablation.policy.base import Progress, SampledTokens, SampleRequest, ScoreRow, Taken, TrainRow, UpdateStats, not_as_asked
from ablation.policy.vllm.adapter_folder import AdapterFolder
from ablation.policy.vllm.client import EngineRefused, vllm_variables
from ablation.policy.vllm.messages import Adapter, Alive, EngineSettings, Finished, Load, Sample, SamplingValues
from ablation.policy.vllm.replicas import Engine
from ablation.policy.vllm.texts import CANARY_TEXTS, CANARY_TOKENS, Compared, Probed, broken_off, probe_values, prompt_ends
from ablation.policy.vllm.turns import Turns
from ablation.rollouts.values import values_in_effect

if TYPE_CHECKING:
    from ablation.policy.local import LocalPolicy

ENGINE_FACTS = (
    *("context", "kv_block", "lora_dtype", "lora_kernel", "chunked_prefill", "async_scheduling", "prefix_caching"),
    "logprobs_mode",
)
ENGINE_SETTINGS = ("sequences", "batch_tokens", "kv_cache_bytes", "tensor_parallel", "eager", "lora_rank", "seed")
SERVER_FACTS, SERVER_SETTINGS = ("context", "kv_block", "prefix_caching", "fingerprint"), ("sequences", "lora_rank")
"""What is known of a server, and of the plan's settings in effect with one."""
ROUNDING = 1e-6
"""If the trainer's logprobs change by more (nats) and the engine's stay the same to the last bit, it has an old adapter."""
MISMATCH = {"float32": 1e-3, "bfloat16": 0.05}
"""Bounds of `policy.vllm.mismatch` where the plan gives none, by dtype (nats)."""


def engine_settings(plan: Plan, base: Path) -> EngineSettings:
    """What the plan says of the engine."""
    vllm = plan.policy.vllm
    assert vllm is not None
    context = vllm.context or base_context(base)
    return EngineSettings(
        model=str(base),
        dtype=plan.model.dtype,
        context=context,
        sequences=vllm.sequences,
        batch_tokens=max(vllm.batch_tokens, context or 0),  # a prompt is never computed in pieces
        kv_cache_bytes=round(vllm.kv_cache_gb * 1e9),
        tensor_parallel=vllm.tensor_parallel,
        eager=vllm.eager,
        threads=plan.policy.threads,
        lora_rank=plan.model.lora.rank,
        top_logprobs=plan.sampling.top_logprobs,
    )


def base_context(base: Path) -> int | None:
    """Most tokens, prompt included, that the model in `base` was made for; None if its config does not say."""
    config = parse_json((base / BASE_CONFIG).read_bytes())
    config = config.get("text_config") or config
    found = config.get("max_position_embeddings")
    return found if isinstance(found, int) else None


class VllmPolicy:
    """A `Policy` of which the sampling is vLLM's and everything else the local policy's."""

    streams = True

    def __init__(
        self,
        plan: Plan,
        trainer: LocalPolicy,
        engine: Engine | Turns,
        end_ids: tuple[int, ...],
        prompts: Sequence[Sequence[int]],
    ) -> None:
        """`engine`: one that runs, or how it and the trainer take turns. `prompts`: those that will be sampled, as ids; engine
        and trainer are compared on what follows their ends.
        """
        self.plan, self.trainer = plan, trainer
        self.turns = engine if isinstance(engine, Turns) else Turns(trainer, lambda: engine, engine=engine)
        sampling = plan.sampling
        self.values = SamplingValues(
            sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens, sampling.top_logprobs, end_ids
        )
        assert plan.policy.vllm is not None
        self.bound = plan.policy.vllm.mismatch or MISMATCH[plan.model.dtype]
        self._held: tuple[str, int, Adapter] | None = None
        self._canaries: dict[str, Compared] = {}
        self.prompts = prompts

    def sample(
        self, requests: list[SampleRequest], progress: Progress | None = None, taken: Taken | None = None
    ) -> list[SampledTokens]:
        """Sample all requests with the current adapter: in order, or each given to `taken` when it ends, and none kept.

        Raises `EngineFailed` if the engine dies or gives back other than what was asked for, and `IntegrityError` if what it
        computes under this adapter is not what the trainer does.
        """
        adapter = self.hand_over()
        if taken is None:
            return self.sample_with(requests, self.values, adapter, progress)
        self._stream(requests, self.values, adapter, progress, taken)
        return []

    def sample_with(
        self,
        requests: Sequence[SampleRequest],
        values: SamplingValues,
        adapter: Adapter | None,
        progress: Progress | None = None,
    ) -> list[SampledTokens]:
        """Sample, in order, with an adapter that the engine holds, or without any."""
        found: dict[int, SampledTokens] = {}
        self._stream(requests, values, adapter, progress, found.__setitem__)
        return [found[place] for place in range(len(requests))]

    def _stream(
        self,
        requests: Sequence[SampleRequest],
        values: SamplingValues,
        adapter: Adapter | None,
        progress: Progress | None,
        taken: Taken,
    ) -> None:
        missing = set(range(len(requests)))

        def told(message: Alive | Finished) -> None:
            if isinstance(message, Finished):
                if message.key not in missing:
                    raise EngineFailed(f"vLLM's engine gave back rollout {message.key}, which was not to come")
                missing.remove(message.key)
                taken(message.key, _checked(message, values))
            if progress is not None:
                progress(message.finished, message.tokens)

        rows = [(place, request.prompt_ids, request.seed) for place, request in enumerate(requests)]
        try:
            self.engine.ask(Sample(rows, values, adapter), told)
        except EngineRefused as refused:
            raise EngineFailed(f"vLLM's engine refused to sample: {refused}") from None
        if missing:
            raise EngineFailed(f"vLLM's engine finished with {len(missing)} of {len(requests)} rollouts missing")

    @property
    def sampling_values(self) -> dict[str, Any]:
        """Every value in effect."""
        use = self.values
        return values_in_effect(use.temperature, use.top_p, use.top_k, use.max_tokens, use.end_ids, **use.record())

    def prepare(self) -> None:
        """The engine here and awake, and with the trainer's adapter."""
        self.hand_over()

    def hand_over(self) -> Adapter:
        """Make the engine hold the trainer's adapter, and prove with a few fixed tokens that it does."""
        digest = self.trainer.adapter_sha256()
        self.turns.engine()
        if self._held is not None and self._held[:2] == (digest, self.turns.count):
            return self._held[2]
        self._held = None
        adapter = self.load_into_engine(digest)
        canary = self.compare(adapter, CANARY_TEXTS, CANARY_TOKENS)
        self._check_canary(digest, canary)
        self._canaries[digest] = canary
        self._held = (digest, self.turns.count, adapter)
        return adapter

    @property
    def engine(self) -> Engine:
        """The engine, started or awake: it is its turn."""
        return self.turns.engine()

    def compare(self, adapter: Adapter | None, texts: int, tokens: int, *, unsure: bool = False) -> Compared:
        """Sample `tokens` tokens after each of `texts` prompts with `adapter`, and score them by the trainer as it is.

        `unsure`: after prompts that break off, and less likely ones.
        """
        probed = self.probe(adapter, texts, tokens, unsure=unsure)
        return probed.against(self.trainer.score(list(probed.rows)))

    def probe(self, adapter: Adapter | None, texts: int, tokens: int, *, unsure: bool = False) -> Probed:
        """Have every engine sample `tokens` tokens after each of `texts` prompts with `adapter`."""
        copies = self.engine.copies
        ends = [end for end in (broken_off if unsure else prompt_ends)(self.prompts, texts) for _ in range(copies)]
        requests = [SampleRequest(end, place // copies) for place, end in enumerate(ends)]
        sampled = self.sample_with(requests, probe_values(tokens, self.values.top_logprobs, unsure=unsure), adapter)
        rows = tuple(ScoreRow(end, one.token_ids) for end, one in zip(ends, sampled, strict=True))
        processed = all((one.top_mass > 1 - 1e-6).all() for one in sampled)
        return Probed(rows, tuple(one.logprobs.astype(np.float64) for one in sampled), processed, copies)

    def load_into_engine(self, digest: str) -> Adapter:
        """Load the trainer's adapter under a name and an id of its digest; the engine reads it from memory where that can be."""
        try:
            with AdapterFolder("adapter") as folder:  # vLLM reads it whole
                self.trainer.save_adapter(folder)
                adapter = Adapter(f"adapter-{digest[:16]}", adapter_number(digest), str(folder))
                self.engine.ask(Load(adapter))
        except EngineRefused as refused:
            raise UsageError(
                f"model.start_adapter: vLLM does not take this adapter: {refused}",
                hint="An adapter that vLLM cannot load can be sampled with `policy: {backend: local}`.",
            ) from None
        return adapter

    def _check_canary(self, digest: str, canary: Compared) -> None:
        if not canary.mismatch <= self.bound:
            raise IntegrityError(
                f"adapter {digest[:12]}: vLLM's logprobs of what it sampled are {canary.mismatch:.2g} nats from the trainer's in "
                f"the mean; the bound is {self.bound:g}: it does not sample what is trained",
                hint="`ablation doctor` looks for the reason. Nothing was sampled with this adapter.",
            )
        for other, earlier in self._canaries.items():
            if other == digest:
                continue
            for now, before in zip(canary.engines(), earlier.engines(), strict=True):
                if not np.array_equal(now.sampler, before.sampler):
                    continue
                moved = float(np.abs(now.trainer - before.trainer).mean())  # of the same tokens: the engine chose them alike
                if moved > ROUNDING:
                    raise IntegrityError(
                        f"adapters {other[:12]} and {digest[:12]} differ by {moved:.2g} nats on the same tokens for the trainer, "
                        "and not at all for vLLM: it goes on with an old adapter",
                        hint="Nothing was sampled with this adapter.",
                    )

    def engine_record(self) -> dict[str, Any]:
        """What of the engine can move a float or a choice: a run does not go on under another."""
        settings, facts = self.turns.settings, self.turns.facts
        known, given = ENGINE_FACTS, ENGINE_SETTINGS
        assert self.plan.policy.vllm is not None
        if self.plan.policy.vllm.engine == "server":
            known, given = SERVER_FACTS, SERVER_SETTINGS
        return {
            "name": "vllm",
            "vllm": facts["vllm"],
            "vllm_engine": self.plan.policy.vllm.engine,
            **{f"vllm_{name}": getattr(settings, name) for name in given},
            "vllm_replicas": self.turns.copies,
            **{f"vllm_{name}": facts[name] for name in known},
            "sampling": self.values.record(),
            **self._environment(),
        }

    def _environment(self) -> dict[str, Any]:
        """`vllm_environment`, where there is anything in it and the engine is one of ours."""
        found = vllm_variables() if self.plan.policy.vllm is not None and self.plan.policy.vllm.engine == "offline" else {}
        return {"vllm_environment": found} if found else {}

    def close(self) -> None:
        """End the engine."""
        self.turns.close()

    # What follows is the local policy's.

    def reset(self, optimizer: Adam | None = None) -> None:
        self.trainer.reset(optimizer)

    def score(self, rows: list[ScoreRow], *, start: bool = False) -> list[np.ndarray]:
        self.turns.trainer()
        return self.trainer.score(rows, start=start)

    def update(self, rows: list[TrainRow], learning_rate: float) -> UpdateStats:
        self.turns.trainer()
        return self.trainer.update(rows, learning_rate)

    def save(self, folder: Path) -> None:
        self.trainer.save(folder)

    def load(self, folder: Path, optimizer: Adam | None = None) -> None:
        self.trainer.load(folder, optimizer)

    def load_adapter(self, folder: Path) -> None:
        self.trainer.load_adapter(folder)

    def adapter_sha256(self) -> str:
        return self.trainer.adapter_sha256()

    @property
    def base_sha256(self) -> str:
        return self.trainer.base_sha256

    @property
    def context(self) -> int:
        """Most tokens, prompt included, that the engine takes: the plan's, or what the model was made for."""
        return self.turns.facts["context"]


def adapter_number(digest: str) -> int:
    """vLLM's integer id of an adapter: positive, and of its digest."""
    return int(digest[:15], 16) % (2**31 - 1) + 1


def _checked(one: Finished, values: SamplingValues) -> SampledTokens:
    """The rollout, if it is what was asked for."""
    count = len(one.token_ids)
    wrong = not_as_asked(one.token_ids, one.finish_reason, values.end_ids, values.max_tokens)
    if not all(len(array) == count for array in (one.logprobs, one.top_entropy, one.top_mass)):
        wrong = f"{count} tokens with {len(one.logprobs)} logprobs"
    elif wrong is None and one.stop_id != (int(one.token_ids[-1]) if one.finish_reason == "stop" else None):
        wrong = f"the stop id {one.stop_id} for a rollout that ended with token {one.token_ids[-1]} ({one.finish_reason})"
    if wrong is not None:
        raise EngineFailed(f"vLLM's engine gave back {wrong}")
    return SampledTokens(one.token_ids, one.logprobs, one.top_entropy, one.top_mass, one.finish_reason, one.stop_id)
