"""Adam over the adapter's weights: made fresh or from stored moments, clipped, and stored by the names of the weights."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ablation.errors import IntegrityError, UsageError
from ablation.plan.arms import Adam

OPTIMIZER_FILE = "optimizer.safetensors"
_CLASSES = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
_FIELDS = {"step", "exp_avg", "exp_avg_sq"}
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


def save_moments(optimizer: torch.optim.Optimizer, weights: Weights, path: Path) -> None:
    """Adam's state as `field/name of the weight`; before the first step it is empty."""
    state = {
        f"{field}/{name}": value.detach().cpu().contiguous()
        for name, weight in weights.items()
        for field, value in optimizer.state.get(weight, {}).items()
    }
    save_file(state or {"empty": torch.zeros(1)}, path)


def load_moments(optimizer: torch.optim.Optimizer, weights: Weights, path: Path) -> None:
    """Read what `save_moments` wrote into a fresh optimizer over the same weights.

    Raises `IntegrityError` if the file cannot be read or is not about exactly these weights.
    """
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise IntegrityError(f"{path}: no usable optimizer state: {error}") from error
    stored.pop("empty", None)
    wanted = {f"{field}/{name}" for name in weights for field in _FIELDS} if stored else set()
    for keys, what in ((wanted - stored.keys(), "is missing"), (stored.keys() - wanted, "is of no weight of this adapter")):
        if keys:
            raise IntegrityError(f"{path}: `{min(keys)}` {what}")
    for key, value in stored.items():
        field, _, name = key.partition("/")
        weight = weights[name]
        if field != "step" and value.shape != weight.shape:
            raise IntegrityError(f"{path}: `{key}` has shape {tuple(value.shape)}, the weight {tuple(weight.shape)}")
        if not torch.isfinite(value).all():
            raise IntegrityError(f"{path}: `{key}` holds numbers that are not finite")
        optimizer.state[weight][field] = value if field == "step" else value.to(weight)


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
