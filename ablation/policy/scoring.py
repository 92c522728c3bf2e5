"""Logprobs of given tokens under a model, and how far two models' logprobs of the same tokens are apart."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ablation.policy.head import chunks
from ablation.policy.mismatch import mismatch
from ablation.policy.packing import Packed

__all__ = ["hidden_states", "mismatch", "token_logprobs"]


def hidden_states(backbone: Callable, packed: Packed) -> torch.Tensor:
    """The hidden states [U, D] that predict the scored tokens, after the last norm."""
    options = {}
    if packed.blocks is not None:
        # Attention goes along the blocks. A mask of four dimensions is one that transformers passes on as it is.
        options = {"blocks": packed.blocks, "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=packed.ids.device)}
    hidden = backbone(input_ids=packed.ids, position_ids=packed.positions, use_cache=False, **options).last_hidden_state
    return hidden.flatten(0, 1).index_select(0, packed.scored_U)


@torch.no_grad()
def token_logprobs(hidden_UD: torch.Tensor, head: Callable, packed: Packed, vocabulary: int) -> torch.Tensor:
    """Raw logprobs ([K], nats, float32 or wider) of the scored tokens, row after row, from their `hidden_states`."""
    found = None
    for chunk in chunks(head, hidden_UD, packed, vocabulary):
        if found is None:
            found = chunk.logprobs.new_empty(packed.count)
        found[chunk.order] = chunk.logprobs
    assert found is not None, "no row has a token to score"
    return found
