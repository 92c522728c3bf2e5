"""Logprobs of given tokens, without ever holding the logits of a whole batch.

Rows are padded on the right: under a causal mask nothing attends to what comes later, so a row's logprobs are those
of the row alone, whatever is beside it. Shapes: B rows, L padded length, D hidden size, K scored tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from ablation.policy.base import ScoreRow

LOGITS_AT_ONCE = 2**24
"""Elements of the logits that exist at one time (64 MB in float32)."""


def micro_batches(rows: Sequence[ScoreRow], tokens: int) -> Iterator[list[int]]:
    """Indices of `rows`, longest first, in batches of at most `tokens` padded tokens (a longer row goes alone)."""
    lengths = [len(row.prompt_ids) + len(row.token_ids) for row in rows]
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: (-lengths[index], index)):
        if batch and lengths[batch[0]] * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _logprobs_of_chunk(head: Callable, hidden_KD: torch.Tensor, targets_K: torch.Tensor) -> torch.Tensor:
    logits_KV = head(hidden_KD).float()
    return logits_KV.gather(1, targets_K.unsqueeze(-1)).squeeze(-1) - torch.logsumexp(logits_KV, dim=-1)


def token_logprobs(
    backbone: Callable, head: Callable, rows: Sequence[ScoreRow], vocabulary: int, device: torch.device
) -> torch.Tensor:
    """Raw logprobs (float32 [K], nats) of the tokens of `rows`, row after row.

    The logits are made chunk by chunk and, under autograd, made again in the backward pass, so memory does not grow
    with length x vocabulary.
    """
    width = max(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    ids_BL = torch.zeros(len(rows), width, dtype=torch.long)
    row_K, position_K, target_K = [], [], []
    for index, row in enumerate(rows):
        prompt, count = len(row.prompt_ids), len(row.token_ids)
        ids_BL[index, :prompt] = torch.tensor(row.prompt_ids)
        ids_BL[index, prompt : prompt + count] = torch.from_numpy(np.asarray(row.token_ids, dtype=np.int64))
        row_K.append(np.full(count, index))
        position_K.append(np.arange(prompt - 1, prompt + count - 1))  # the position that predicts each token
        target_K.append(np.asarray(row.token_ids, dtype=np.int64))
    hidden_BLD = backbone(input_ids=ids_BL.to(device), use_cache=False).last_hidden_state
    flat_K = torch.from_numpy(np.concatenate(row_K) * width + np.concatenate(position_K)).to(device)
    hidden_KD = hidden_BLD.reshape(-1, hidden_BLD.shape[-1]).index_select(0, flat_K)
    targets_K = torch.from_numpy(np.concatenate(target_K)).to(device)
    chunk = max(1, LOGITS_AT_ONCE // vocabulary)
    pieces = []
    for start in range(0, len(targets_K), chunk):
        part = (head, hidden_KD[start : start + chunk], targets_K[start : start + chunk])
        if torch.is_grad_enabled() and len(targets_K) > chunk:
            pieces.append(checkpoint(_logprobs_of_chunk, *part, use_reentrant=False))
        else:
            pieces.append(_logprobs_of_chunk(*part))
    return torch.cat(pieces)


def mismatch(trainer_logprobs: np.ndarray, sampler_logprobs: np.ndarray) -> dict[str, float]:
    """How far the trainer's logprobs are from the sampler's on the same tokens (nats), over the tokens where both are finite.

    `k3` is the estimator exp(d) - d - 1 of KL(sampler || trainer) with d = trainer - sampler
    (Schulman, "Approximating KL Divergence", 2020).
    """
    difference = trainer_logprobs.astype(np.float64) - sampler_logprobs.astype(np.float64)
    difference = difference[np.isfinite(difference)]
    names = ("mean_absolute", "p99_absolute", "share_ratio_outside_10_percent", "k3")
    if not len(difference):
        return dict.fromkeys(names, 0.0)
    absolute, ratio = np.abs(difference), np.exp(difference)
    values = (absolute.mean(), np.quantile(absolute, 0.99), (np.abs(ratio - 1) > 0.1).mean(), (ratio - difference - 1).mean())
    return {name: float(value) for name, value in zip(names, values, strict=True)}
