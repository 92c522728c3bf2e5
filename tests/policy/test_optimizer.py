import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from ablation.errors import IntegrityError, UsageError
from ablation.plan.arms import Adam
from ablation.policy.optimizer import (
    clip_gradient,
    gradient_norm,
    load_moments,
    load_start_moments,
    make_optimizer,
    save_moments,
)


def weights(*values):
    return {"a": torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))}


def step(adam, value, gradients, learning_rate=0.1):
    own = weights(value)
    optimizer = make_optimizer(own, adam, learning_rate)
    for gradient in gradients:
        own["a"].grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    return own["a"].item()


def by_hand(value, gradients, *, l2=0.0, decoupled=0.0, rate=0.1, beta1=0.9, beta2=0.95, eps=1e-8):
    """Kingma & Ba, Algorithm 1, with either kind of weight decay (Loshchilov & Hutter, Algorithm 2)."""
    m = v = 0.0
    for t, gradient in enumerate(gradients, start=1):
        gradient += l2 * value
        m, v = beta1 * m + (1 - beta1) * gradient, beta2 * v + (1 - beta2) * gradient**2
        value -= rate * decoupled * value
        value -= rate * (m / (1 - beta1**t)) / (math.sqrt(v / (1 - beta2**t)) + eps)
    return value


def test_adam_and_adamw_by_hand():
    gradients = [0.3, -0.1, 0.2]
    assert step(Adam(), 2.0, gradients) == pytest.approx(by_hand(2.0, gradients), rel=1e-12)
    assert step(Adam(weight_decay=0.5), 2.0, gradients) == pytest.approx(by_hand(2.0, gradients, l2=0.5), rel=1e-12)
    decoupled = step(Adam(name="adamw", weight_decay=0.5), 2.0, gradients)
    assert decoupled == pytest.approx(by_hand(2.0, gradients, decoupled=0.5), rel=1e-12)
    assert decoupled != pytest.approx(step(Adam(weight_decay=0.5), 2.0, gradients), rel=1e-3)


def test_a_zero_gradient_moves_nothing_with_fresh_moments_and_something_with_old_ones():
    assert step(Adam(), 2.0, [0.0]) == 2.0
    assert step(Adam(), 2.0, [1.0, 0.0]) != step(Adam(), 2.0, [1.0])


def test_clipping_scales_a_large_gradient_and_leaves_a_small_one():
    own = weights(0.0, 0.0)
    own["a"].grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    norm = gradient_norm(own)
    assert norm == 5.0
    clip_gradient(own, norm, 10.0)
    clip_gradient(own, norm, None)
    assert own["a"].grad.tolist() == [3.0, 4.0]
    clip_gradient(own, norm, 1.0)
    assert own["a"].grad.tolist() == pytest.approx([0.6, 0.8])
    assert math.isnan(gradient_norm(weights(1.0)))


def trained(folder):
    own = weights(1.0, 2.0)
    optimizer = make_optimizer(own, Adam(), 0.1)
    own["a"].grad = torch.tensor([0.5, -0.25], dtype=torch.float64)
    optimizer.step()
    save_moments(optimizer, own, folder / "optimizer.safetensors")
    return own, optimizer


def test_moments_survive_the_disk(tmp_path):
    own, optimizer = trained(tmp_path)
    fresh = make_optimizer(own, Adam(), 0.1)
    load_moments(fresh, own, tmp_path / "optimizer.safetensors")
    for field, value in optimizer.state[own["a"]].items():
        assert torch.equal(fresh.state[own["a"]][field], value)


def test_before_the_first_step_the_state_is_empty(tmp_path):
    own = weights(1.0)
    save_moments(make_optimizer(own, Adam(), 0.1), own, tmp_path / "optimizer.safetensors")
    fresh = make_optimizer(own, Adam(), 0.1)
    load_moments(fresh, own, tmp_path / "optimizer.safetensors")
    assert not fresh.state
    with pytest.raises(UsageError, match="holds no moments"):
        load_start_moments(fresh, own, tmp_path)


DAMAGE = {
    "a moment missing": (lambda state: state.pop("exp_avg/a"), r"`exp_avg/a` is missing"),
    "another weight": (lambda state: state.update({"exp_avg/b": torch.zeros(1)}), r"`exp_avg/b` is of no weight"),
    "another shape": (
        lambda state: state.update({"exp_avg/a": torch.zeros(3)}),
        r"`exp_avg/a` has shape \(3,\), the weight \(2,\)",
    ),
    "not finite": (lambda state: state["exp_avg_sq/a"].fill_(math.nan), r"`exp_avg_sq/a` holds numbers that are not finite"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_state_that_does_not_fit_is_refused(tmp_path, damage):
    own, _ = trained(tmp_path)
    path = tmp_path / "optimizer.safetensors"
    change, message = DAMAGE[damage]
    state = load_file(path)
    change(state)
    save_file(state, path)
    with pytest.raises(IntegrityError, match=message):
        load_moments(make_optimizer(own, Adam(), 0.1), own, path)
    with pytest.raises(UsageError, match=rf"training\.optimizer\.state: .*{message}") as caught:
        load_start_moments(make_optimizer(own, Adam(), 0.1), own, tmp_path)
    assert "state: fresh" in caught.value.hint


def test_a_file_that_is_none(tmp_path):
    own = weights(1.0)
    with pytest.raises(UsageError, match="there is no such file"):
        load_start_moments(make_optimizer(own, Adam(), 0.1), own, tmp_path)
    (tmp_path / "optimizer.safetensors").write_bytes(b"no")
    with pytest.raises(UsageError, match="no usable optimizer state"):
        load_start_moments(make_optimizer(own, Adam(), 0.1), own, tmp_path)
