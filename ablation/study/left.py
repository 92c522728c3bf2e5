"""What the command of an external arm left: taken only if it is an adapter like the one that the arm began with."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
from pathlib import Path

from ablation.files import disk_errors, write_json
from ablation.plan.load import field_path
from ablation.plan.model import Plan
from ablation.plan.model_files import ADAPTER_CONFIG, adapter_problems

ADAPTER_FILE = "adapter_model.safetensors"
STATE = "state"


class UnusableError(ValueError):
    """What was left cannot be used; the message goes on with "the command ended well, but"."""


def take_adapter(out: Path, into: Path, *, plan: Plan, start: Path, before: Path) -> float:
    """Write the adapter in `out` to `into`, in float32 and with the start adapter's configuration.

    Returns the norm of the change of all weights against the adapter in `before`.

    Raises `UnusableError` unless it has the tensors of the adapter in `start`: names and shapes, floats, all finite.
    """
    import torch
    from safetensors.torch import save_file

    for name in (ADAPTER_FILE, ADAPTER_CONFIG):
        _need_file(out / name, out)
    problems = adapter_problems(plan, out)
    if problems:
        path, text = problems[0]
        raise UnusableError(f"its adapter is not the plan's: {field_path(path)}: {text}")
    found, wanted, old = (_tensors(folder / ADAPTER_FILE) for folder in (out, start, before))
    extra = found.keys() - wanted.keys()
    for names, what in ((wanted.keys() - found.keys(), "is missing"), (extra, "is none of the start adapter's")):
        if names:
            frozen = ".base_layer." in min(names) or "embed_tokens" in min(names)
            hint = " (a frozen one; `save_pretrained(OUT, save_embedding_layers=False)` leaves it out)" if frozen else ""
            raise UnusableError(f"in its {ADAPTER_FILE} weight `{min(names)}` {what}{hint}")
    for name, weight in sorted(found.items()):
        if weight.shape != wanted[name].shape:
            shapes = f"the shape {tuple(weight.shape)}, the start adapter's has {tuple(wanted[name].shape)}"
            raise UnusableError(f"in its {ADAPTER_FILE} weight `{name}` has {shapes}")
        if not weight.is_floating_point():
            raise UnusableError(f"in its {ADAPTER_FILE} weight `{name}` has the type {weight.dtype}, which is no float")
        if not torch.isfinite(weight.float()).all():
            raise UnusableError(f"in its {ADAPTER_FILE} weight `{name}` holds numbers that are not finite")
    new = {name: weight.float().contiguous() for name, weight in sorted(found.items())}
    squares = [float((weight.double() - old[name].double()).square().sum()) for name, weight in new.items()]
    config = json.loads((start / ADAPTER_CONFIG).read_bytes())
    config["target_modules"] = sorted(config["target_modules"])
    config["base_model_name_or_path"] = plan.model.base.at  # a command's own may be a path of this machine
    with disk_errors(into):
        save_file(new, into / ADAPTER_FILE, metadata={"format": "pt"})
    write_json(into / ADAPTER_CONFIG, config)
    return math.sqrt(math.fsum(squares))


def take_state(out: Path, into: Path) -> None:
    """Copy `state/`, if the command left one. Raises `UnusableError` for what is neither a file nor a folder."""
    state = out / STATE
    if not os.path.lexists(state):
        return
    for path in (state, *sorted(state.rglob("*"))):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or (path == state and not stat.S_ISDIR(mode)):
            raise UnusableError(f"it left {path.relative_to(out)}, which is {'no folder' if path == state else 'no plain file'}")
    if any(path.is_file() for path in state.rglob("*")):
        with disk_errors(into):
            shutil.copytree(state, into / STATE)


def _need_file(path: Path, out: Path) -> None:
    if not os.path.lexists(path):
        there = ", ".join(sorted(one.name for one in out.iterdir())[:5]) or "nothing"
        raise UnusableError(f"it left no {path.name} in ABLATION_OUT (there is: {there})")
    if not stat.S_ISREG(path.lstat().st_mode):
        raise UnusableError(f"its {path.name} is no plain file")


def _tensors(path: Path) -> dict:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UnusableError(f"its {path.name} cannot be read: {error}") from error
