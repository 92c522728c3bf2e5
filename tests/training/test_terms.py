import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablation.plan.arms import Clip, KLAnchor
from ablation.training.terms import anchor, clipped, damped


def test_only_the_flat_side_of_each_sign_is_clipped():
    ratios = np.array([1.3, 1.3, 0.7, 0.7, 1.2, 0.8, 5.0])
    weights = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 0.0])
    found = clipped(weights, np.log(ratios), np.zeros(7), Clip(low=0.25, high=0.25))
    assert found.tolist() == [True, False, False, True, False, False, False]


def test_a_ratio_that_is_no_number_is_left_for_the_update_to_name():
    found = clipped(np.ones(3), np.array([np.nan, -np.inf, np.inf]), np.array([0.0, -1.0, np.inf]), Clip())
    assert found.tolist() == [False, False, False]


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-1, 1)), min_size=1, max_size=20))
def test_zeroed_weights_have_the_gradient_of_the_clipped_objective(tokens):
    weights, moved = (torch.tensor(column, dtype=torch.float64) for column in zip(*tokens, strict=True))
    trainer = moved.clone().requires_grad_()
    ratio = trainer.exp()
    torch.minimum(weights * ratio, weights * ratio.clamp(0.8, 1.28)).sum().backward()
    flat = clipped(weights.numpy(), moved.numpy(), np.zeros(len(moved)), Clip(low=0.2, high=0.28))
    ours = np.where(flat, 0.0, weights.numpy()) * np.exp(moved.numpy())
    assert ours == pytest.approx(trainer.grad.numpy(), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_anchor_is_minus_the_gradient_of_its_estimator(estimator):
    change = torch.tensor([-2.0, -0.1, 0.0, 0.3, 1.5], dtype=torch.float64, requires_grad=True)
    term = change**2 / 2 if estimator == "k1" else torch.exp(-change) + change - 1  # k2 has k1's gradient
    (0.04 * term).sum().backward()
    found = anchor(KLAnchor(beta=0.04, estimator=estimator), 1.0, change.detach().numpy())
    assert found == pytest.approx(-change.grad.numpy(), abs=1e-15)


def test_the_unit_of_beta():
    change = np.array([0.5])
    assert anchor(KLAnchor(beta=0.1), 7.0, change).tolist() == [-0.05]
    assert anchor(KLAnchor(beta=0.1, unit="advantage"), 7.0, change) == pytest.approx([-0.35])


def test_damping_shrinks_and_never_turns():
    assert damped(np.array([-0.5, 0.5, -9.0]), np.array([2.0, 2.0, 2.0])).tolist() == [-0.5, 0.0, -2.0]
