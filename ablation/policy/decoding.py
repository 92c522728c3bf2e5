"""Seeded decoding: each rollout has its own stream of uniforms, so a seed means the same in every batch.

Shapes: B rows being decoded, V vocabulary, P padded prompt length, K keys in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

from ablation.policy.base import Progress, SampledTokens, SampleRequest
from ablation.policy.head import largest

Forward = Callable[..., torch.Tensor]
"""(input_ids_BL, attention_mask_B1LK, position_ids_BL, cache) -> logits_BV of the last position."""

COMPACT_BELOW = 0.75
"""Finished rows are dropped from the batch once fewer than this share of it is still being decoded."""


@dataclass(frozen=True)
class Decoding:
    """Every value that decides what is sampled; the model folder's own defaults play no part."""

    temperature: float
    top_p: float
    top_k: int  # 0 means all tokens
    max_tokens: int
    top_logprobs: int
    end_ids: tuple[int, ...]
    pad_id: int


class PreallocatedLayer(DynamicLayer):
    """A cache layer that writes into one buffer: appending a token copies that token, not the whole cache."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        batch, heads, _, head_size = key_states.shape
        self.key_buffer = key_states.new_empty(batch, heads, self.capacity, head_size)
        self.value_buffer = value_states.new_empty(batch, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self.key_buffer[:, :, self.length : end] = key_states
        self.value_buffer[:, :, self.length : end] = value_states
        self.length = end
        self.keys, self.values = self.key_buffer[:, :, :end], self.value_buffer[:, :, :end]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.key_buffer = self.key_buffer[indices]
        self.value_buffer = self.value_buffer[indices]
        self.keys, self.values = self.key_buffer[:, :, : self.length], self.value_buffer[:, :, : self.length]


def uniforms(seed: int, count: int) -> np.ndarray:
    """`count` uniforms in [0, 1) of a rollout: Philox, a counter-based generator, keyed by the rollout's seed."""
    return np.random.Generator(np.random.Philox(key=seed)).random(count)


def choose_tokens(raw_logprobs_BV: torch.Tensor, uniforms_B: torch.Tensor, decoding: Decoding) -> torch.Tensor:
    """Sample one token a row by inverting the cumulative distribution (float64) at the row's uniform."""
    logits_BV = raw_logprobs_BV
    if decoding.temperature != 1.0:
        # From the largest down and in float64, so that a temperature near 0 gives 0 and -inf, never 0 / 0.
        logits_BV = (logits_BV - logits_BV.max(dim=-1, keepdim=True).values).double() / decoding.temperature
    ids_BV = None
    if decoding.top_k and decoding.top_k < logits_BV.shape[1]:
        logits_BV, ids_BV = torch.topk(logits_BV, decoding.top_k, dim=-1)
    elif decoding.top_p < 1.0:
        logits_BV, ids_BV = torch.sort(logits_BV, dim=-1, descending=True, stable=True)
    probabilities_BV = torch.softmax(logits_BV.double(), dim=-1)
    if decoding.top_p < 1.0:
        before_BV = torch.cumsum(probabilities_BV, dim=-1) - probabilities_BV
        probabilities_BV = torch.where(before_BV < decoding.top_p, probabilities_BV, 0.0)
    cumulative_BV = torch.cumsum(probabilities_BV, dim=-1)
    targets_B1 = (uniforms_B * cumulative_BV[:, -1]).unsqueeze(-1)
    picked_B = torch.searchsorted(cumulative_BV, targets_B1, right=True).squeeze(-1)
    picked_B = picked_B.clamp_(max=cumulative_BV.shape[1] - 1)
    return picked_B if ids_BV is None else ids_BV.gather(1, picked_B.unsqueeze(-1)).squeeze(-1)


def pad_left(prompts: list[tuple[int, ...]], pad_id: int, device: torch.device):
    """Prompts of different lengths as (ids_BP, valid_BP, position_ids_BP)."""
    width = max(map(len, prompts))
    ids_BP = torch.full((len(prompts), width), pad_id, dtype=torch.long)
    valid_BP = torch.zeros((len(prompts), width), dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids_BP[row, width - len(prompt) :] = torch.tensor(prompt)
        valid_BP[row, width - len(prompt) :] = True
    position_ids_BP = (valid_BP.long().cumsum(1) - 1).clamp_(min=0)
    return ids_BP.to(device), valid_BP.to(device), position_ids_BP.to(device)


def prefill_mask(valid_BP: torch.Tensor) -> torch.Tensor:
    """Causal mask over left-padded prompts (True = may attend), shape [B, 1, P, P].

    A padding query attends to itself: a row with nothing to attend to would be NaN and spread through the cache.
    """
    width = valid_BP.shape[1]
    causal_PP = torch.ones(width, width, dtype=torch.bool, device=valid_BP.device).tril_()
    own_PP = torch.eye(width, dtype=torch.bool, device=valid_BP.device)
    return ((causal_PP & valid_BP[:, None, :]) | own_PP)[:, None]


def decode(
    forward: Forward,
    layers: int,
    requests: list[SampleRequest],
    decoding: Decoding,
    device: torch.device,
    progress: Progress | None,
    without_gradient: Callable[[], AbstractContextManager] = torch.inference_mode,
) -> list[SampledTokens]:
    """Sample every request; rows of one call share a batch, and finished rows leave it."""
    with without_gradient():
        return _decode(forward, layers, requests, decoding, device, progress)


def _decode(forward, layers, requests, decoding, device, progress) -> list[SampledTokens]:
    cap, total = decoding.max_tokens, len(requests)
    ids_BL, valid_BK, positions_BL = pad_left([request.prompt_ids for request in requests], decoding.pad_id, device)
    width = ids_BL.shape[1]
    uniforms_RT = torch.from_numpy(np.stack([uniforms(request.seed, cap) for request in requests])).to(device)
    end_ids = torch.tensor(decoding.end_ids, device=device)
    token_ids_RT = torch.zeros(total, cap, dtype=torch.long, device=device)
    floats_RT3 = torch.zeros(total, cap, 3, dtype=torch.float32, device=device)
    lengths_R = torch.zeros(total, dtype=torch.long, device=device)
    ended_R = torch.zeros(total, dtype=torch.bool, device=device)

    cache = Cache(layers=[PreallocatedLayer(width + cap) for _ in range(layers)])
    valid_BK = torch.nn.functional.pad(valid_BK, (0, cap), value=True)
    rows_B = torch.arange(total, device=device)
    logits_BV = forward(ids_BL, prefill_mask(valid_BK[:, :width]), positions_BL, cache)
    positions_B = positions_BL[:, -1]
    active_B = torch.ones(total, dtype=torch.bool, device=device)
    for step in range(cap):
        raw_BV = torch.log_softmax(logits_BV.float(), dim=-1)
        chosen_B = choose_tokens(raw_BV, uniforms_RT[rows_B, step], decoding)
        top_Bk = largest(raw_BV, decoding.top_logprobs)
        mass_B = top_Bk.exp().sum(-1)
        normal_Bk = top_Bk - mass_B.log().unsqueeze(-1)
        entropy_B = -(normal_Bk.exp() * normal_Bk).sum(-1)
        logprob_B = raw_BV.gather(1, chosen_B.unsqueeze(-1)).squeeze(-1)

        live_R = rows_B[active_B]
        token_ids_RT[live_R, step] = chosen_B[active_B]
        floats_RT3[live_R, step] = torch.stack([logprob_B, entropy_B, mass_B], dim=-1)[active_B]
        lengths_R[live_R] = step + 1
        ended_B = active_B & torch.isin(chosen_B, end_ids)
        ended_R[rows_B[ended_B]] = True
        active_B = active_B & ~ended_B
        alive = int(active_B.sum())
        if progress is not None:
            progress(total - alive, int(lengths_R.sum()))
        if not alive or step + 1 == cap:
            break
        positions_B = positions_B + 1
        if alive <= COMPACT_BELOW * len(rows_B):
            keep = active_B.nonzero().squeeze(-1)
            for layer in cache.layers:
                layer.batch_select_indices(keep)
            rows_B, chosen_B, positions_B, valid_BK = rows_B[keep], chosen_B[keep], positions_B[keep], valid_BK[keep]
            active_B = torch.ones(len(keep), dtype=torch.bool, device=device)
        mask_B11K = valid_BK[:, None, None, : width + step + 1]
        logits_BV = forward(chosen_B.unsqueeze(-1), mask_B11K, positions_B.unsqueeze(-1), cache)

    token_ids, floats, lengths = token_ids_RT.cpu().numpy(), floats_RT3.cpu().numpy(), lengths_R.tolist()
    return [
        SampledTokens(
            token_ids=token_ids[row, : lengths[row]].copy(),
            logprobs=floats[row, : lengths[row], 0].copy(),
            top_entropy=floats[row, : lengths[row], 1].copy(),
            top_mass=floats[row, : lengths[row], 2].copy(),
            finish_reason="stop" if ended else "length",
            stop_id=int(token_ids[row, lengths[row] - 1]) if ended else None,
        )
        for row, ended in enumerate(ended_R.tolist())
    ]
