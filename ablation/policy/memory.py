"""What trainer and engine take of a device's memory, from the plan and the model's config alone: before anything is loaded.

An estimate: weights, adapter, moments and the KV cache are counted, activations are counted from what the layers keep, and what
programs take for themselves was measured. Sizes in bytes. Shapes as everywhere: N tokens, D hidden size, I inside of the MLP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ablation.errors import UsageError
from ablation.plan.cost import base_bytes
from ablation.plan.footprint import (
    BYTES,
    ENGINE_PROCESS,
    GRAPHS,
    TRAINER_PROCESS,
    engine_activations,
    kv_bytes,
    rank_times,
    shape_of,
    trainer_parts,
)
from ablation.plan.model import Plan


class TooSmall(UsageError):
    """This machine cannot run the plan; another one may."""


@dataclass(frozen=True)
class Estimate:
    """What each side takes at most, by purpose, in bytes on one device; `trainer_idle` stays while the engine has its turn."""

    trainer: dict[str, int]
    trainer_idle: int
    engine: dict[str, int]
    engines_here: int
    """Engines on the trainer's own device."""
    longest: int
    """Tokens of the longest prompt and rollout together."""
    kv_of_one: int
    """Keys and values of one rollout of that length, on one device."""
    kv_given: int

    @property
    def together(self) -> int:
        return sum(self.trainer.values()) + self.engines_here * sum(self.engine.values())

    @property
    def in_turns(self) -> int:
        """With one of them at a time."""
        return max(sum(self.trainer.values()), self.trainer_idle + self.engines_here * sum(self.engine.values()))

    @property
    def at_once(self) -> int:
        """Rollouts of the longest length that the KV cache holds."""
        return self.kv_given // self.kv_of_one


def estimate(
    plan: Plan, config: dict[str, Any], longest_prompt: int, device: str, engines_here: int, processes: int = 1
) -> Estimate:
    """For a plan with vLLM. `device`: `cpu` or `cuda`; `engines_here`: how many engines work on the trainer's device.

    `processes`: over how many the trainer is divided; each has a GPU of its own, or all share the CPU's memory.
    """
    vllm, shape, size = plan.policy.vllm, shape_of(config, plan), BYTES[plan.model.dtype]
    assert vllm is not None
    longest = longest_prompt + plan.sampling.max_tokens
    weights, parts = base_bytes(plan), vllm.tensor_parallel
    block = 128 if device == "cpu" else 16
    kv_of_one = -(-longest // block) * block * kv_bytes(shape, size) // parts
    trainer = trainer_parts(plan, shape, longest, device, processes)
    every = sum(rank_times(shape, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
    slots = (every + rank_times(shape, "lm_head")) * plan.model.lora.rank * size
    process = ENGINE_PROCESS[device] + (0 if vllm.eager or device == "cpu" else GRAPHS)
    if device == "cpu":  # its parts are processes on one device
        weights_here, slots_here, process = weights, slots, process * (parts + (parts > 1))
    else:
        weights_here, slots_here = weights // parts, slots // parts
    engine = {
        "weights": weights_here,
        "adapter": 2 * slots_here,  # the slot, and the adapter as it was read
        "kv cache": round(vllm.kv_cache_gb * 1e9) * (parts if device == "cpu" else 1),
        "activations": engine_activations(plan, shape, longest),
        "process": process,
    }
    passing = trainer["activations"] + trainer.get("gathered", 0)
    idle = sum(trainer.values()) - passing if device == "cpu" else TRAINER_PROCESS[device]
    return Estimate(trainer, idle, engine, engines_here, longest, kv_of_one, round(vllm.kv_cache_gb * 1e9))
