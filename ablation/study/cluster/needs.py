"""What a unit needs of a machine, and whether a cluster has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablation.errors import UsageError
from ablation.plan.engines import Policy
from ablation.study.machine import Machine


@dataclass(frozen=True)
class Needs:
    """Of one unit, on one machine."""

    cpus: int
    gpus: int

    def places(self, cpus: float, gpus: float) -> int:
        """How many units a machine with so much does at one time."""
        found = int(cpus // self.cpus)
        return min(found, int(gpus // self.gpus)) if self.gpus else found


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    id: str
    host: str
    cpus: float
    gpus: float

    @classmethod
    def of(cls, record: dict[str, Any]) -> Node:
        """`record`: of `ray.nodes()`."""
        has = record.get("Resources", {})
        return cls(record["NodeID"], record["NodeManagerHostname"], has.get("CPU", 0.0), has.get("GPU", 0.0))


def needs_of(policy: Policy, machine: Machine, nodes: Sequence[Node]) -> Needs:
    """`policy.threads` CPUs; where the cluster has GPUs, one for the trainer and those of vLLM's engines, `tensor_parallel` for
    each of its `replicas`. Trainer and engine share a GPU if they take turns, or if no machine has one more.
    """
    most = max((node.gpus for node in nodes), default=0)
    if not most:
        return Needs(policy.threads, 0)
    if policy.vllm is None:
        return Needs(policy.threads, 1)
    engines = policy.vllm.tensor_parallel * policy.vllm.replicas
    shares = machine.turns in ("restart", "sleep") or (machine.turns == "auto" and most == engines)
    return Needs(policy.threads, engines if shares else engines + 1)


def places(needs: Needs, nodes: Sequence[Node], policy: Policy) -> int:
    """How many units the cluster does at one time. Raises `UsageError` if it can never do one, saying what is missing."""
    found = sum(needs.places(node.cpus, node.gpus) for node in nodes)
    if found:
        return found
    words = f"{needs.cpus} CPUs (policy.threads)"
    if needs.gpus:
        own = "the trainer"
        if policy.vllm is not None:
            own = f"policy.vllm.tensor_parallel {policy.vllm.tensor_parallel} x replicas {policy.vllm.replicas}, and {own}"
        words += f" and {needs.gpus} GPUs ({own})"
    has = "; ".join(f"{node.host} has {node.cpus:g} CPUs and {node.gpus:g} GPUs" for node in nodes[:8]) or "it has no machine"
    more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
    raise UsageError(
        f"--on: a piece of work needs {words} on one machine, and no machine of the cluster has that: {has}{more}",
        hint="Nothing was started.",
    )
