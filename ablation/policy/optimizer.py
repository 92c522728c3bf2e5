"""Adam over the adapter's weights: made fresh or from stored moments, clipped, and stored by the names of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ablation.errors import IntegrityError, UsageError
from ablation.plan.arms import Adam
from ablation.plan.model_files import MOMENTS, OPTIMIZER_FILE

_CLASSES = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
Weights = dict[str, torch.Tensor]


def make_optimizer(weights: Weights, adam: Adam, learning_rate: float) -> torch.optim.Optimizer:
    """Adam with empty moments over exactly `weights`."""
    return _CLASSES[adam.name](
        list(weights.values()), lr=learning_rate, betas=(adam.beta1, adam.beta2), eps=adam.eps, weight_decay=adam.weight_decay
    )


def gradient_norm(weights: Weights) -> float:
    """The norm of all gradients together, in float64; NaN if there is none."""
    norms = [torch.linalg.vector_norm(weight.grad, dtype=torch.float64) for weight in weights.values() if weight.grad is not None]
    return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else math.nan


def clip_gradient(weights: Weights, norm: float, largest: float | None) -> None:
    """Scale a gradient of `norm` down to `largest`; a smaller one stays as it is, to the last bit."""
    if largest is not None and norm > largest:
        for weight in weights.values():
            if weight.grad is not None:
                weight.grad.mul_(largest / norm)


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether no tensor holds an infinity or a NaN."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def take_step(optimizer: torch.optim.Optimizer, weights: Weights, finite: Callable[..., bool] = all_finite) -> bool:
    """One step. False if a weight or a moment would not be finite after it: then all of them are as they were before."""
    weights_before = {name: weight.detach().clone() for name, weight in weights.items()}
    state_before = {
        name: {field: value.clone() for field, value in optimizer.state[weight].items()}
        for name, weight in weights.items()
        if weight in optimizer.state
    }
    optimizer.step()
    if finite([*weights.values(), *(value for state in optimizer.state.values() for value in state.values())]):
        return True
    optimizer.state.clear()
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(weights_before[name])
            if name in state_before:
                optimizer.state[weight] = state_before[name]
    return False


def moments(optimizer: torch.optim.Optimizer, weights: Weights) -> Iterator[tuple[str, torch.Tensor]]:
    """Adam's state as (`field/name of the weight`, value); before the first step there is none."""
    for name, weight in weights.items():
        for field, value in optimizer.state.get(weight, {}).items():
            yield f"{field}/{name}", value.detach()


def save_moments(state: Iterable[tuple[str, torch.Tensor]], path: Path) -> None:
    """Write `moments`."""
    found = {name: value.cpu().contiguous() for name, value in state}
    save_file(found or {"empty": torch.zeros(1)}, path)


def move_moments(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """The moments to `device`, beside the weights; the count of steps stays where Adam keeps it, on the CPU."""
    for state in optimizer.state.values():
        for field, value in state.items():
            if field != "step":
                state[field] = value.to(device)


def load_moments(optimizer: torch.optim.Optimizer, weights: Weights, path: Path) -> None:
    """Read what `save_moments` wrote into a fresh optimizer over the same weights.

    Raises `IntegrityError` if the file cannot be read or is not about exactly these weights.
    """
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise IntegrityError(f"{path}: no usable optimizer state: {error}") from error
    stored.pop("empty", None)
    wanted = {f"{field}/{name}" for name in weights for field in MOMENTS} if stored else set()
    for keys, what in ((wanted - stored.keys(), "is missing"), (stored.keys() - wanted, "is of no weight of this adapter")):
        if keys:
            raise IntegrityError(f"{path}: `{min(keys)}` {what}")
    for key, value in stored.items():
        field, _, name = key.partition("/")
        weight = weights[name]
        if field != "step":
            optimizer.state[weight][field] = fitting(f"{path}: `{key}`", value, weight)
            if field == "exp_avg_sq" and (value < 0).any():
                raise IntegrityError(f"{path}: `{key}` holds negative squares")
            continue
        _need_float(f"{path}: `{key}`", value)
        if value.shape != () or not (value >= 1 and value % 1 == 0):
            raise IntegrityError(f"{path}: `{key}` is no count of steps")
        optimizer.state[weight][field] = value


def fitting(what: str, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`value`, read from a file, in the type and on the device of `weight`; `what` names it in a message.

    Raises `IntegrityError` unless it has the weight's shape and holds floats that are finite in its type.
    """
    _need_float(what, value)
    if value.shape != weight.shape:
        raise IntegrityError(f"{what} has the shape {tuple(value.shape)}, the weight {tuple(weight.shape)}")
    found = value.to(weight.device, weight.dtype)
    if not torch.isfinite(found).all():
        raise IntegrityError(f"{what} holds numbers that are not finite")
    return found


def _need_float(what: str, value: torch.Tensor) -> None:
    if value.dtype not in _FLOATS:
        raise IntegrityError(f"{what} has the type {value.dtype}, which is no float that can be used")


def load_start_moments(optimizer: torch.optim.Optimizer, weights: Weights, start_adapter: Path) -> None:
    """The moments that a plan with `state: start` names. Raises `UsageError` if there are none that fit."""
    path = start_adapter / OPTIMIZER_FILE
    hint = "Put the optimizer state of that very adapter beside it, as a checkpoint of a run has it, or plan `state: fresh`."
    if not path.is_file():
        raise UsageError(f"training.optimizer.state: `start` needs {path}, and there is no such file", hint=hint)
    try:
        load_moments(optimizer, weights, path)
    except IntegrityError as error:
        raise UsageError(f"training.optimizer.state: {error.message}", hint=hint) from error
    if not optimizer.state:
        raise UsageError(f"training.optimizer.state: {path} holds no moments: no step was taken before it was stored", hint=hint)
