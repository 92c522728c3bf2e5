"""Causal attention along the paths of a packed sequence (`packing`), as an attention function of transformers.

Each row of a block is gathered, attends causally to itself by PyTorch's own kernel, and gives back the outputs it owns. What
is kept for the backward pass are the packed queries, keys and values alone; the rest is made again, block by block.
Shapes: N packed tokens, H query heads, G key heads (H = G * Q), D head size, B rows of a block, L its padded length.
"""

from __future__ import annotations

import math
from contextlib import contextmanager

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ablation.policy.packing import Block

PACKED = "ablation_packed"
EXPLICIT_BACKWARD_BELOW = 768
"""On a CPU, PyTorch's backward kernel has a cost per head and row that matrix products do not have: below this length
products are faster (measured in float32 and bfloat16 at 100 to 1024 tokens), above it they are slower and need L x L scores."""


def packed_attention(module, query, key, value, attention_mask, *, blocks: list[Block] | None = None, **options):
    """Attention of one layer: along `blocks` where the caller packed its tokens, else PyTorch's own on padded rows."""
    if blocks is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    scaling = options.get("scaling")
    scaling = 1.0 / math.sqrt(query.shape[-1]) if scaling is None else scaling
    # Under autocast the rotary embedding leaves queries and keys in the dtype of the residual stream.
    query_NHD, key_NGD, value_NGD = (one[0].transpose(0, 1).to(value.dtype) for one in (query, key, value))
    return _Attend.apply(query_NHD, key_NGD, value_NGD, blocks, scaling)[None], None


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, sdpa_mask)


def can_pack(causal) -> bool:
    """Whether every layer of a transformers model mixes tokens by plain causal attention and nothing else."""
    config = causal.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    windows = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
    rotary = getattr(config, "rope_parameters", None) is not None or hasattr(config, "rope_theta")
    return kinds == {"full_attention"} and not windows and rotary and bool(causal._supports_attention_backend)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query_NHD, key_NGD, value_NGD, blocks: list[Block], scaling: float):
        ctx.save_for_backward(query_NHD, key_NGD, value_NGD)
        ctx.blocks, ctx.scaling = blocks, scaling
        out_NHD = query_NHD.new_empty(*query_NHD.shape[:2], value_NGD.shape[-1])
        for block in blocks:
            query, key, value = (_gather(one, block) for one in (query_NHD, key_NGD, value_NGD))
            out_BHLD = _kernel(query, key, value, scaling)
            out_NHD.index_copy_(0, block.owned_tokens, _owned(out_BHLD, block.owned))
        return out_NHD

    @staticmethod
    def backward(ctx, grad_NHD):
        query_NHD, key_NGD, value_NGD = ctx.saved_tensors
        wide = torch.promote_types(query_NHD.dtype, torch.float32)  # a shared beginning sums over its rows
        grad_query_NHD = torch.empty_like(query_NHD)
        grad_key_NGD, grad_value_NGD = (torch.zeros_like(one, dtype=wide) for one in (key_NGD, value_NGD))
        for block in ctx.blocks:
            short = block.tokens_BL.shape[1] < EXPLICIT_BACKWARD_BELOW and grad_NHD.device.type == "cpu"
            backward = _backward_by_products if short else _backward_of_kernel
            key, value = (_gather(one, block) for one in (key_NGD, value_NGD))
            grad_owned, grad_key, grad_value = backward(query_NHD, key, value, grad_NHD, block, ctx.scaling)
            grad_query_NHD.index_copy_(0, block.owned_tokens, grad_owned)
            # Padding is only ever seen by padding, whose output nobody owns: what is added for it is exactly 0.
            places = block.tokens_BL.flatten()
            grad_key_NGD.index_add_(0, places, grad_key.transpose(1, 2).flatten(0, 1).to(wide))
            grad_value_NGD.index_add_(0, places, grad_value.transpose(1, 2).flatten(0, 1).to(wide))
        return grad_query_NHD, grad_key_NGD.to(key_NGD.dtype), grad_value_NGD.to(value_NGD.dtype), None, None


def _gather(tensor_NHD: torch.Tensor, block: Block) -> torch.Tensor:
    """The block's rows, [B, H, L, D]."""
    gathered = tensor_NHD.index_select(0, block.tokens_BL.flatten())
    return gathered.view(*block.tokens_BL.shape, *tensor_NHD.shape[1:]).transpose(1, 2)


def _kernel(query, key, value, scaling: float) -> torch.Tensor:
    shared = query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=shared)


def _owned(tensor_BHLD: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """What stands at `places` of B * L, [owned, H, D]."""
    return tensor_BHLD.transpose(1, 2).flatten(0, 1).index_select(0, places)


def _spread(tensor_NHD: torch.Tensor, block: Block, places: torch.Tensor, width: int) -> torch.Tensor:
    """What the block owns at its places in [B, H, width, D], and 0 elsewhere."""
    batch, rest = len(block.tokens_BL), tensor_NHD.shape[1:]
    spread = tensor_NHD.new_zeros(batch * width, *rest)
    spread.index_copy_(0, places, tensor_NHD.index_select(0, block.owned_tokens))
    return spread.view(batch, width, *rest).transpose(1, 2)


@contextmanager
def strictly_deterministic():
    """GPU kernels of attention add in a random order unless nothing less is allowed; elsewhere a warning has to do, as not
    every operation has another way."""
    before = torch.is_deterministic_algorithms_warn_only_enabled()
    on = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(on, warn_only=False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(on, warn_only=before)


def _backward_of_kernel(query_NHD, key_BGLD, value_BGLD, grad_NHD, block: Block, scaling: float):
    """Gradients of the owned queries [owned, H, D], of keys and of values, by PyTorch's kernel."""
    with torch.enable_grad():
        inputs = [one.detach().requires_grad_() for one in (_gather(query_NHD, block), key_BGLD, value_BGLD)]
        out = _kernel(*inputs, scaling)
    grad = _spread(grad_NHD, block, block.owned, block.tokens_BL.shape[1])
    with strictly_deterministic():
        grad_query, grad_key, grad_value = torch.autograd.grad(out, inputs, grad)
    return _owned(grad_query, block.owned), grad_key, grad_value


def _backward_by_products(query_NHD, key_BGLD, value_BGLD, grad_NHD, block: Block, scaling: float):
    """As `_backward_of_kernel`, for the owned queries alone. Scores and their gradient are float32 or wider, and the query
    heads of one key head stand side by side in one product."""
    batch, groups, length, size = key_BGLD.shape
    heads, width = query_NHD.shape[1] // groups, block.queries
    wide = torch.promote_types(query_NHD.dtype, torch.float32)
    query, grad = (
        _spread(one, block, block.owned_queries, width).reshape(batch * groups, heads * width, one.shape[-1])
        for one in (query_NHD, grad_NHD)
    )
    query = query * scaling
    key, value = (one.reshape(batch * groups, length, one.shape[-1]) for one in (key_BGLD, value_BGLD))
    scores = torch.bmm(query.to(wide), key.to(wide).mT)
    own_place_BQ1 = block.first_B[:, None, None] + torch.arange(width, device=query.device)[:, None]
    later_BQL = torch.arange(length, device=query.device) > own_place_BQ1
    scores.view(batch, groups, heads, width, length).masked_fill_(later_BQL[:, None, None], -math.inf)
    probabilities = torch.softmax(scores, dim=-1)
    grad_probabilities = torch.bmm(grad.to(wide), value.to(wide).mT)
    grad_scores = torch.ops.aten._softmax_backward_data(grad_probabilities, probabilities, -1, wide).to(query.dtype)
    grad_query = torch.bmm(grad_scores, key).mul_(scaling).view(batch, groups * heads, width, size)
    grad_key, grad_value = torch.bmm(grad_scores.mT, query), torch.bmm(probabilities.to(query.dtype).mT, grad)
    return _owned(grad_query, block.owned_queries), grad_key.view(key_BGLD.shape), grad_value.view(value_BGLD.shape)
