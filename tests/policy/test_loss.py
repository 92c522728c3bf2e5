import math

import pytest
import torch

from ablation.policy.loss import NonFiniteLoss, policy_gradient_loss


def test_sum_of_minus_weight_times_ratio():
    logprobs = torch.tensor([math.log(0.5), math.log(0.2)], requires_grad=True)
    sampler = torch.tensor([math.log(0.25), math.log(0.2)])
    weights = torch.tensor([3.0, -1.0])
    loss = policy_gradient_loss(logprobs, sampler, weights)
    assert float(loss.detach()) == pytest.approx(-(3.0 * 2.0 - 1.0))
    loss.backward()  # d/dlogp of -w * exp(logp - s) is -w * ratio
    assert logprobs.grad.tolist() == pytest.approx([-6.0, 1.0])


def test_a_token_without_weight_is_selected_out_whatever_its_logprob():
    logprobs = torch.tensor([-0.5, -math.inf, -0.2], requires_grad=True)
    loss = policy_gradient_loss(logprobs, torch.tensor([-0.5, -0.1, -0.2]), torch.tensor([1.0, 0.0, 1.0]))
    loss.backward()
    assert float(loss.detach()) == -2.0
    assert torch.isfinite(logprobs.grad).all() and logprobs.grad[1] == 0


def test_a_weighted_token_that_is_not_finite_is_an_error():
    with pytest.raises(NonFiniteLoss):
        policy_gradient_loss(torch.tensor([-math.inf]), torch.tensor([-0.1]), torch.tensor([1.0]))
