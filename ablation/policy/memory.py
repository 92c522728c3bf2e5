"""What trainer and engine take of a device's memory, from the plan and the model's config alone: before anything is loaded.

An estimate: weights, adapter, moments and the KV cache are counted, activations are counted from what the layers keep, and what
programs take for themselves was measured. Sizes in bytes. Shapes as everywhere: N tokens, D hidden size, I inside of the MLP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ablation.errors import UsageError
from ablation.plan.cost import base_bytes, update_sizes
from ablation.plan.model import Plan

BYTES = {"float32": 4, "bfloat16": 2}
LOGITS_AT_ONCE = {"cpu": 2**24, "cuda": 2**26}
"""Those of `head`, which this module does not import: it needs no torch."""
ATTENTION_TOKENS, ATTENTION_LENGTH = 2048, 768
"""Of `packing` and `attention` on a CPU: beyond them no scores are kept."""
TRAINER_PROCESS = {"cpu": 600_000_000, "cuda": 600_000_000}
"""Python with torch and transformers; on a GPU the context and the libraries' workspaces."""
ENGINE_PROCESS = {"cpu": 900_000_000, "cuda": 1_000_000_000}
"""The same of one engine process with vLLM; measured with its CPU build, assumed for a GPU."""
CPU_HEAP = {"float32": 1.0, "bfloat16": 1.5}
"""On a CPU, float32 intermediates leave holes between the bfloat16 tensors that a backward pass keeps; measured."""
GRAPHS = 1_500_000_000
"""CUDA graphs of an engine that is not eager; assumed."""


class TooSmall(UsageError):
    """This machine cannot run the plan; another one may."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder of the kind that both engines know."""

    layers: int
    hidden: int
    inside: int
    heads: int
    key_heads: int
    head_size: int
    vocabulary: int

    def target(self, name: str) -> tuple[int, int, int]:
        """(in, out, how many times) of a module with an adapter; an unknown one is taken for a square of the hidden size."""
        queries, keys = self.heads * self.head_size, self.key_heads * self.head_size
        sizes = {
            "q_proj": (self.hidden, queries),
            "k_proj": (self.hidden, keys),
            "v_proj": (self.hidden, keys),
            "o_proj": (queries, self.hidden),
            "gate_proj": (self.hidden, self.inside),
            "up_proj": (self.hidden, self.inside),
            "down_proj": (self.inside, self.hidden),
            "lm_head": (self.hidden, self.vocabulary),
        }
        once = name in ("lm_head", "embed_tokens")
        return (*sizes.get(name, (self.hidden, self.hidden)), 1 if once else self.layers)


def shape_of(config: dict[str, Any], plan: Plan) -> Shape:
    """From a model's config.json; what it does not say is taken from the plan, or as the usual multiple."""
    config = config.get("text_config") or config
    hidden = config.get("hidden_size") or plan.model.hidden_size
    heads = config.get("num_attention_heads") or max(1, hidden // 64)
    return Shape(
        layers=config.get("num_hidden_layers") or plan.model.layers,
        hidden=hidden,
        inside=config.get("intermediate_size") or 4 * hidden,
        heads=heads,
        key_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or hidden // heads,
        vocabulary=config.get("vocab_size") or plan.model.vocabulary,
    )


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


def estimate(plan: Plan, config: dict[str, Any], longest_prompt: int, device: str, engines_here: int) -> Estimate:
    """For a plan with vLLM. `device`: `cpu` or `cuda`; `engines_here`: how many engines work on the trainer's device."""
    vllm, shape, size = plan.policy.vllm, shape_of(config, plan), BYTES[plan.model.dtype]
    assert vllm is not None
    longest = longest_prompt + plan.sampling.max_tokens
    weights, parts = base_bytes(plan), vllm.tensor_parallel
    block = 128 if device == "cpu" else 16
    kv_of_one = -(-longest // block) * block * kv_bytes(shape, size) // parts
    adapter = adapter_parameters(plan, shape)
    trainer = {
        "weights": weights,
        "adapter": 8 * 4 * adapter,  # weights, the start's, gradient, two moments, and what a step that fails goes back to
        "activations": trainer_activations(plan, shape, longest, device),
        "process": TRAINER_PROCESS[device],
    }
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
    idle = sum(trainer.values()) - trainer["activations"] if device == "cpu" else TRAINER_PROCESS[device]
    return Estimate(trainer, idle, engine, engines_here, longest, kv_of_one, round(vllm.kv_cache_gb * 1e9))


def kv_bytes(shape: Shape, size: int) -> int:
    """Keys and values of one token."""
    return 2 * shape.layers * shape.key_heads * shape.head_size * size


def rank_times(shape: Shape, target: str) -> int:
    """Parameters of an adapter of rank 1 on every module of that name."""
    inside, outside, times = shape.target(target)
    return (inside + outside) * times


def adapter_parameters(plan: Plan, shape: Shape) -> int:
    """Of the plan's adapter."""
    return plan.model.lora.rank * sum(rank_times(shape, name) for name in plan.model.lora.targets)


def trainer_activations(plan: Plan, shape: Shape, longest: int, device: str) -> int:
    """At the peak of a backward pass over the fullest micro-batch, or the longest row, which is never divided.

    A layer keeps for each token: both norms' inputs and outputs (4 D), queries, keys, values, the attention's output twice,
    the gate, what it gates and their product (3 I), and in float32 the adapter's inner part for each target.
    """
    size, rank = BYTES[plan.model.dtype], plan.model.lora.rank
    computed = 2 if plan.training.autocast == "bfloat16" else size
    rollouts = update_sizes(len(plan.cells), plan.training.updates)[0] * plan.training.rollouts_per_cell
    tokens = max(longest, min(plan.training.micro_batch_tokens, rollouts * longest))
    queries, keys = shape.heads * shape.head_size, shape.key_heads * shape.head_size
    layer = computed * (2 * shape.hidden + 3 * queries + 2 * keys + 3 * shape.inside) + size * 2 * shape.hidden
    layer += 4 * rank * sum(name != "lm_head" for name in plan.model.lora.targets)
    kept = size * shape.hidden if plan.training.gradient_checkpointing else layer
    passing = 4 * 3 * max(shape.inside, queries) + (layer if plan.training.gradient_checkpointing else 0)
    if device == "cpu":
        kept = round(kept * CPU_HEAP[plan.model.dtype])
    logits = min(LOGITS_AT_ONCE[device], tokens * shape.vocabulary)
    scores = 0
    if device == "cpu":
        length = min(longest, ATTENTION_LENGTH)
        scores = 4 * 4 * min(tokens, max(ATTENTION_TOKENS, longest)) * length * shape.heads
    return tokens * (shape.layers * kept + passing) + max(logits * (2 * size + 4), scores)


def engine_activations(plan: Plan, shape: Shape, longest: int) -> int:
    """One step over as many tokens as it may compute, and the float32 logits of all rollouts with their logprobs and orders."""
    vllm = plan.policy.vllm
    assert vllm is not None
    tokens = min(max(vllm.batch_tokens, longest), vllm.sequences * longest)
    layer = BYTES[plan.model.dtype] * (4 * shape.hidden + 3 * shape.inside)
    return tokens * layer + vllm.sequences * shape.vocabulary * 4 * 4
