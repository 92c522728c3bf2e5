"""The sizes of a decoder, and what training and sampling with it take of a device's memory, counted without loading anything.

Activations are counted from what the layers keep, and what programs take for themselves was measured. Sizes in bytes.
Shapes as everywhere: N tokens, D hidden size, I inside of the MLP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


LINEAR_TARGETS = ("in_proj_qkv", "in_proj_qkvz", "in_proj_z", "in_proj_ba")
"""Modules that only layers of linear attention have."""
KEY_WIDTH = 1024
"""Width of a layer's keys where no config says it: that of most grouped-query models of 7 to 70 billion parameters. Assumed."""
FULL_EVERY = 4
"""Of a model with linear attention where no config says it: one layer in so many has full attention. Assumed."""
STATE = 128
"""Key size of a head of linear attention where no config says it. Assumed."""


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
    linear: int = 0
    """Layers of linear attention: they keep a state of one size, however long the text is, and no keys and values."""
    linear_keys: int = 0
    """Width of such a layer's keys."""
    linear_values: int = 0
    linear_key_size: int = STATE
    tied: bool = False
    """The output layer is the input embedding."""
    gated: bool = False
    """Full attention has a gate beside its queries, of their width."""

    @property
    def full(self) -> int:
        """Layers with full attention."""
        return self.layers - self.linear

    def target(self, name: str) -> tuple[int, int, int]:
        """(in, out, how many times) of a module with an adapter; an unknown one is taken for a square of the hidden size."""
        queries, keys = self.heads * self.head_size, self.key_heads * self.head_size
        wide = 2 * self.linear_keys + self.linear_values
        sizes = {
            "q_proj": (self.hidden, queries * (1 + self.gated), self.full),
            "k_proj": (self.hidden, keys, self.full),
            "v_proj": (self.hidden, keys, self.full),
            "o_proj": (queries, self.hidden, self.full),
            "gate_proj": (self.hidden, self.inside, self.layers),
            "up_proj": (self.hidden, self.inside, self.layers),
            "down_proj": (self.inside, self.hidden, self.layers),
            "lm_head": (self.hidden, self.vocabulary, 1),
            "embed_tokens": (self.vocabulary, self.hidden, 1),
            "in_proj_qkv": (self.hidden, wide, self.linear),
            "in_proj_qkvz": (self.hidden, wide + self.linear_values, self.linear),
            "in_proj_z": (self.hidden, self.linear_values, self.linear),
            "out_proj": (self.linear_values, self.hidden, self.linear),
        }
        if name in ("out_proj", *LINEAR_TARGETS) and not self.linear:
            return self.hidden, self.hidden, self.layers
        return sizes.get(name, (self.hidden, self.hidden, self.layers))


SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "intermediate_size",
    "full_attention_interval",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
)
"""What `shape_of` reads of a config as numbers."""
LARGEST = 10**9


def wrong_in_config(config: dict[str, Any]) -> str | None:
    """What in a model's config.json cannot be a size, in words; None if `shape_of` can read it."""
    own = config.get("text_config")
    if own is not None and not isinstance(own, dict):
        return "`text_config` is not a JSON object"
    own = own or config
    for name in SIZES:
        value = own.get(name)
        if value is not None and (type(value) is not int or not 1 <= value <= LARGEST):
            return f"`{name}` is {str(value)[:40]}; a whole number from 1 to {LARGEST:,} is needed"
    kinds, layers = own.get("layer_types"), own.get("num_hidden_layers")
    if isinstance(kinds, list) and layers is not None and len(kinds) != layers:
        return f"`layer_types` has {len(kinds)} entries, and `num_hidden_layers` is {layers}"
    return None


def shape_of(config: dict[str, Any], plan: Plan) -> Shape:
    """From a model's config.json; what it does not say is taken from the plan, or as the usual multiple."""
    config = config.get("text_config") or config
    model = plan.model
    hidden = config.get("hidden_size") or model.hidden_size
    layers = config.get("num_hidden_layers") or model.layers
    heads = config.get("num_attention_heads") or max(1, hidden // 64)
    head_size = config.get("head_dim") or hidden // heads
    key_heads = config.get("num_key_value_heads") or (heads if config else max(1, min(heads, KEY_WIDTH // max(1, head_size))))
    vocabulary = config.get("vocab_size") or model.vocabulary
    inside = config.get("intermediate_size") or (
        4 * hidden if config else _inside(model.parameters, layers, hidden, key_heads * head_size, vocabulary)
    )
    linear = _linear_layers(config, layers, model.lora.targets)
    key_size = config.get("linear_key_head_dim") or STATE
    return Shape(
        layers=layers,
        hidden=hidden,
        inside=inside,
        heads=heads,
        key_heads=key_heads,
        head_size=head_size,
        vocabulary=vocabulary,
        linear=linear,
        linear_keys=(config.get("linear_num_key_heads") or 0) * key_size or hidden // 2,
        linear_values=(config.get("linear_num_value_heads") or 0) * (config.get("linear_value_head_dim") or STATE) or hidden,
        linear_key_size=key_size,
        tied=bool(config.get("tie_word_embeddings", False)),
        gated=bool(config.get("attn_output_gate", False)),
    )


def _linear_layers(config: dict[str, Any], layers: int, targets: list[str]) -> int:
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return sum(kind == "linear_attention" for kind in kinds)
    if config.get("full_attention_interval"):
        return layers - layers // int(config["full_attention_interval"])
    if not config and any(name in LINEAR_TARGETS for name in targets):
        return layers - layers // FULL_EVERY
    return 0


def _inside(parameters: int, layers: int, hidden: int, keys: int, vocabulary: int) -> int:
    """Width of the MLP that gives a decoder with three matrices in it so many parameters, embedding and output layer apart."""
    layer = (parameters - 2 * vocabulary * hidden) // max(1, layers) - 2 * hidden * (hidden + keys)
    return max(hidden, layer // (3 * hidden))


def kv_bytes(shape: Shape, size: int) -> int:
    """Keys and values of one token."""
    return 2 * shape.full * shape.key_heads * shape.head_size * size


def state_bytes(shape: Shape) -> int:
    """What linear attention keeps of one rollout, however long it is: float32."""
    return 4 * shape.linear * shape.linear_values * shape.linear_key_size


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


def trainer_parts(plan: Plan, shape: Shape, longest: int, device: str, processes: int = 1) -> dict[str, int]:
    """What training takes of one device, by purpose.

    Several processes each hold a part of base and adapter, and beside it what is gathered at one time: two layers, or the
    embedding or the head. The tied weight of those two is held twice then.
    """
    size, weights = BYTES[plan.model.dtype], base_bytes(plan)
    # Adapter: weights, the start's, gradient, two moments, and what a step that fails goes back to.
    adapter = 8 * 4 * adapter_parameters(plan, shape)
    activations, process = trainer_activations(plan, shape, longest, device), TRAINER_PROCESS[device]
    if processes == 1:
        return {"weights": weights, "adapter": adapter, "activations": activations, "process": process}
    table = size * shape.vocabulary * shape.hidden
    layer = max(0, weights - table * (1 if shape.tied else 2)) // shape.layers
    weights += table if shape.tied else 0
    gathered = max(2 * layer, table)
    if device == "cpu":  # all of them share its memory
        activations, process, gathered = activations * processes, process * processes, gathered * processes
    else:
        weights, adapter = -(-weights // processes), -(-adapter // processes)
    return {"weights": weights, "gathered": gathered, "adapter": adapter, "activations": activations, "process": process}
