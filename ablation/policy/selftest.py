"""Before anything is sampled: does this model, on this machine and with these versions, compute what a run takes for granted?

A wrong position, mask, padding side, end of a shared beginning or a stale adapter shows as logprobs that differ; none of
them shows as an error. The texts are made-up ids, the same for every run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ablation.errors import IntegrityError
from ablation.policy.base import SampleRequest, ScoreRow

if TYPE_CHECKING:
    from ablation.policy.local import LocalPolicy

BOUNDS = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 1.0}
"""Largest difference of two logprobs of one token (nats). bfloat16 has 8 bits: a logit between 16 and 32 is a multiple of 1/8."""
MEAN_BOUNDS = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 0.2}
"""The same for the mean over tokens."""
_HINT = (
    "Nothing was sampled. These versions of torch, transformers and peft cannot be used for this model: try those of the README."
)


def self_test(policy: LocalPolicy) -> None:
    """Raise `IntegrityError` if padding, packing or batching move logprobs, if sampler and scorer differ, or if a changed
    adapter changes nothing. Leaves the policy as it was."""
    rows = _rows(policy.causal.config.vocab_size)
    scored = policy.score(rows)
    bfloat16 = policy.plan.training.autocast == "bfloat16"
    dtype = torch.bfloat16 if bfloat16 else next(policy.causal.parameters()).dtype
    _compare("a row alone, by the model's own forward pass, and the same row in a batch", _alone(policy, rows), scored, dtype)
    requests = [SampleRequest(row.prompt_ids, seed) for seed, row in enumerate(rows)]
    decoding = replace(policy.decoding, max_tokens=4)
    sampled = policy.decode(requests, decoding)
    again = policy.score([ScoreRow(row.prompt_ids, one.token_ids) for row, one in zip(rows, sampled, strict=True)])
    _compare("the sampler, on prompts padded on the left, and the trainer", [one.logprobs for one in sampled], again, dtype)
    _canary(policy, rows, scored)


def _rows(vocabulary: int) -> list[ScoreRow]:
    """Three prompts of different lengths; the last two rows begin alike, within their tokens too."""
    ids = np.random.default_rng(7).integers(0, vocabulary, 24).tolist()
    tokens = np.array(ids[10:17])
    return [
        ScoreRow(tuple(ids[:2]), np.array(ids[17:24])),
        ScoreRow(tuple(ids[2:10]), tokens),
        ScoreRow(tuple(ids[2:10]), np.concatenate([tokens[:3], ids[:2]])),
        ScoreRow(tuple(ids[5:9]), tokens[:1]),
    ]


@torch.no_grad()
def _alone(policy: LocalPolicy, rows: list[ScoreRow]) -> list[np.ndarray]:
    found = []
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids.tolist()]], device=policy.device)
        with policy.precision():
            logits = policy.causal(input_ids=ids, use_cache=False).logits[0, len(row.prompt_ids) - 1 : -1]
        logprobs = torch.log_softmax(logits.double(), dim=-1)
        found.append(logprobs.gather(1, ids[0, len(row.prompt_ids) :, None]).squeeze(1).cpu().numpy())
    return found


def _compare(what: str, one: list[np.ndarray], other: list[np.ndarray], dtype: torch.dtype) -> None:
    difference = np.abs(np.concatenate(one) - np.concatenate(other))
    largest, mean = float(difference.max()), float(difference.mean())
    if not (largest <= BOUNDS[dtype] and mean <= MEAN_BOUNDS[dtype]):  # NaN is a difference too
        name = str(dtype).removeprefix("torch.")
        raise IntegrityError(
            f"self-test: {what} have logprobs that differ by up to {largest:.2g} nats, {mean:.2g} in the mean "
            f"(at most {BOUNDS[dtype]} and {MEAN_BOUNDS[dtype]} in {name})",
            hint=_HINT,
        )


def _canary(policy: LocalPolicy, rows: list[ScoreRow], scored: list[np.ndarray]) -> None:
    kept = {name: weight.detach().clone() for name, weight in policy.trainable.items()}
    policy.set_weights({name: weight + 0.05 for name, weight in kept.items()})
    try:
        moved = policy.score(rows)
    finally:
        policy.set_weights(kept)
    if np.array_equal(np.concatenate(moved), np.concatenate(scored)):
        raise IntegrityError("self-test: another adapter gives the same logprobs: the adapter has no effect", hint=_HINT)
    if not np.array_equal(np.concatenate(policy.score(rows)), np.concatenate(scored)):
        raise IntegrityError("self-test: the same adapter gives other logprobs the second time", hint=_HINT)
