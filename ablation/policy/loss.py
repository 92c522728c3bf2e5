"""The loss: the plain sum over tokens of -weight * ratio. What an arm is lives in the weights, not here."""

from __future__ import annotations

import torch


class NonFiniteLoss(ValueError):
    """A weighted token has a logprob that is not finite."""


def policy_gradient_loss(logprobs_K: torch.Tensor, sampler_logprobs_K: torch.Tensor, weights_K: torch.Tensor) -> torch.Tensor:
    """Scalar -sum_k w_k * exp(logp_k - logp_sampler_k): importance sampling with its per-token advantages summed.

    Tokens without a weight are selected out, not multiplied by zero: -inf * 0 would be NaN for the whole batch.
    Because it is a plain sum, splitting a batch, its order and its padding cannot change what is computed.
    """
    weighted_K = weights_K != 0
    difference_K = torch.where(weighted_K, logprobs_K - sampler_logprobs_K, 0.0)
    if not torch.isfinite(difference_K).all():
        raise NonFiniteLoss("a weighted token has a logprob that is not finite")
    return -(weights_K * torch.where(weighted_K, difference_K.exp(), 0.0)).sum()
