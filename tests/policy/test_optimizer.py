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
    moments,
    move_moments,
    save_moments,
    take_step,
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
    save_moments(moments(optimizer, own), folder / "optimizer.safetensors")
    return own, optimizer


def test_moments_survive_the_disk(tmp_path):
    own, optimizer = trained(tmp_path)
    fresh = make_optimizer(own, Adam(), 0.1)
    load_moments(fresh, own, tmp_path / "optimizer.safetensors")
    for field, value in optimizer.state[own["a"]].items():
        assert torch.equal(fresh.state[own["a"]][field], value)


def test_before_the_first_step_the_state_is_empty(tmp_path):
    own = weights(1.0)
    save_moments(moments(make_optimizer(own, Adam(), 0.1), own), tmp_path / "optimizer.safetensors")
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
        r"`exp_avg/a` has the shape \(3,\), the weight \(2,\)",
    ),
    "a step of another form": (lambda state: state.update({"step/a": torch.ones(3)}), r"`step/a` is no count of steps"),
    "a negative step": (lambda state: state.update({"step/a": torch.tensor(-1.0)}), r"`step/a` is no count of steps"),
    "half a step": (lambda state: state.update({"step/a": torch.tensor(1.5)}), r"`step/a` is no count of steps"),
    "a step of another type": (lambda state: state.update({"step/a": torch.tensor(True)}), r"`step/a` has the type torch.bool"),
    "a complex moment": (
        lambda state: state.update({"exp_avg/a": torch.zeros(2, dtype=torch.complex64)}),
        r"`exp_avg/a` has the type torch.complex64, which is no float",
    ),
    "eight bits": (
        lambda state: state.update({"exp_avg/a": torch.zeros(2).to(torch.float8_e4m3fn)}),
        r"`exp_avg/a` has the type torch.float8_e4m3fn",
    ),
    "a negative square": (lambda state: state["exp_avg_sq/a"].fill_(-1e-12), r"`exp_avg_sq/a` holds negative squares"),
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


def test_moments_that_the_weights_type_cannot_hold_are_refused(tmp_path):
    own = {"a": torch.nn.Parameter(torch.zeros(1))}
    state = {
        "step/a": torch.tensor(1.0),
        "exp_avg/a": torch.zeros(1),
        "exp_avg_sq/a": torch.full((1,), 1e300, dtype=torch.float64),
    }
    save_file(state, tmp_path / "optimizer.safetensors")
    with pytest.raises(IntegrityError, match="`exp_avg_sq/a` holds numbers that are not finite"):
        load_moments(make_optimizer(own, Adam(), 0.1), own, tmp_path / "optimizer.safetensors")


@pytest.mark.parametrize(
    ("name", "decay", "gradient"),
    [
        ("adam", 0.0, 1e20),  # its square is beyond float32, and so is the second moment
        ("adam", 1e15, 1.0),  # decay times weight is 1e35, and its square
        ("adamw", 1e15, 1.0),  # 1 - rate * decay is -1e14 or so: a weight of 1e25 leaves float32
    ],
)
@pytest.mark.parametrize("taken", [False, True])
def test_a_step_to_no_number_leaves_everything_as_it_was(name, decay, gradient, taken):
    own = {"a": torch.nn.Parameter(torch.tensor([1e25, 1.0]))}
    optimizer = make_optimizer(own, Adam(name=name), 0.1)
    if taken:
        own["a"].grad = torch.tensor([0.5, -0.25])
        assert take_step(optimizer, own)
    optimizer.param_groups[0]["weight_decay"] = decay
    weight = own["a"].detach().clone()
    state = {field: value.clone() for field, value in optimizer.state.get(own["a"], {}).items()}
    own["a"].grad = torch.tensor([gradient, 1.0])
    assert not take_step(optimizer, own)
    assert torch.equal(own["a"], weight)
    assert optimizer.state.get(own["a"], {}).keys() == state.keys() == ({"step", "exp_avg", "exp_avg_sq"} if taken else set())
    assert all(torch.equal(optimizer.state[own["a"]][field], value) for field, value in state.items())


def test_a_file_that_is_none(tmp_path):
    own = weights(1.0)
    with pytest.raises(UsageError, match="there is no such file"):
        load_start_moments(make_optimizer(own, Adam(), 0.1), own, tmp_path)
    (tmp_path / "optimizer.safetensors").write_bytes(b"no")
    with pytest.raises(UsageError, match="no usable optimizer state"):
        load_start_moments(make_optimizer(own, Adam(), 0.1), own, tmp_path)


def test_all_moments_move_and_the_count_of_steps_stays_on_the_cpu():
    own = weights(1.0, 2.0)
    optimizer = make_optimizer(own, Adam(), 0.1)
    own["a"].grad = torch.tensor([0.5, 0.5], dtype=torch.float64)
    optimizer.step()
    move_moments(optimizer, torch.device("meta"))
    state = optimizer.state[own["a"]]
    assert {name: value.device.type for name, value in state.items()} == {"step": "cpu", "exp_avg": "meta", "exp_avg_sq": "meta"}
    assert state["step"] == 1
