"""What the JSON files of a model folder say, against the plan: found before locking, without loading any weight."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from ablation.files import parse_json
from ablation.plan.locate import locate
from ablation.plan.model import Plan

Problem = tuple[tuple[str | int, ...], str]
ADAPTER_CONFIG, ADAPTER_FILE = "adapter_config.json", "adapter_model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps of each weight, as a checkpoint names it before `/` and the weight's name."""
_LONGEST_HEADER = 10**8  # bytes, as in the safetensors format
BASE_CONFIG = "config.json"
PLAIN_LORA = {
    "peft_type": "LORA",
    "bias": "none",
    "use_dora": False,
    "use_rslora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "layers_to_transform": None,
    "layer_replication": None,
    "trainable_token_indices": None,
    "target_parameters": None,
    "fan_in_fan_out": False,
}
"""What an adapter may have beside its shape that changes what it computes or what is trained, and its plain value: plans describe
plain LoRA only, and only that is merged."""


def model_problems(plan: Plan, plan_path: Path) -> list[Problem]:
    """(path in the plan, what is wrong) for the model folders that are at hand; what is missing or owed is passed over."""
    problems: list[Problem] = []
    base, adapter = (locate(one, plan_path) for one in (plan.model.base, plan.model.start_adapter))
    if plan.model.base.owed is None and base.is_dir():
        problems += base_problems(plan, base)
    if plan.model.start_adapter.owed is None and adapter.is_dir():
        problems += adapter_problems(plan, adapter)
        problems += moments_problems(plan, adapter)
    return problems


def base_problems(plan: Plan, base: Path) -> list[Problem]:
    """The base's shape and context length, against the plan."""
    config, why = _read(base / BASE_CONFIG)
    if config is None:
        return [(("model", "base"), why)]
    nested = config.get("text_config")
    config = nested if isinstance(nested, dict) else config
    problems: list[Problem] = []
    for field, name in (("layers", "num_hidden_layers"), ("hidden_size", "hidden_size"), ("vocabulary", "vocab_size")):
        planned, there = getattr(plan.model, field), config.get(name)
        if isinstance(there, int) and there != planned:
            problems.append((("model", field), f"found {planned}, but {base / BASE_CONFIG} has {name} {there}"))
    context = config.get("max_position_embeddings")
    if isinstance(context, int) and plan.sampling.max_tokens >= context:
        text = f"found {plan.sampling.max_tokens}, but the model's context is {context} tokens, prompt included"
        problems.append((("sampling", "max_tokens"), text))
    if config.get("tie_word_embeddings") is True and "lm_head" in plan.model.lora.targets:
        text = "`lm_head` shares its matrix with the input embeddings in this model; leave it out, or a merge would change both"
        problems.append((("model", "lora", "targets"), text))
    return problems


def adapter_problems(plan: Plan, adapter: Path) -> list[Problem]:
    """The start adapter's shape, against the plan."""
    config, why = _read(adapter / ADAPTER_CONFIG)
    if config is None:
        return [(("model", "start_adapter"), why)]
    problems: list[Problem] = []
    for name, plain in PLAIN_LORA.items():
        there = config.get(name, plain)
        if (there or None) != (plain or None):
            text = f"{adapter / ADAPTER_CONFIG} has {name} {json.dumps(there)}; a plan describes plain LoRA ({json.dumps(plain)})"
            problems.append((("model", "start_adapter"), text))
    lora, targets = plan.model.lora, config.get("target_modules")
    if not isinstance(targets, list) or not all(isinstance(one, str) for one in targets):
        text = f"{adapter / ADAPTER_CONFIG} has target_modules {json.dumps(targets)}, not a list of module names"
        return [*problems, (("model", "start_adapter"), text)]
    found = {"rank": config.get("r"), "alpha": config.get("lora_alpha"), "targets": sorted(targets)}
    wanted = {"rank": lora.rank, "alpha": lora.alpha, "targets": sorted(lora.targets)}
    for name, value in wanted.items():
        if found[name] != value:
            problems.append((("model", "lora", name), f"the plan says {value}, the start adapter has {found[name]} ({adapter})"))
    return problems


def moments_problems(plan: Plan, adapter: Path) -> list[Problem]:
    """Whether the moments are there and fit that `state: start` begins with, for each place of the plan that asks for them."""
    training = plan.training
    asked = [
        ("arms", name, "optimizer", "state")
        for name, arm in plan.arms.items()
        if arm.optimizer and arm.optimizer.state == "start"
    ]
    if training.optimizer.state == "start" and any(
        arm.external is None and training.optimizer_of(arm).state == "start" for arm in plan.arms.values()
    ):
        asked.insert(0, ("training", "optimizer", "state"))
    why = _unusable_moments(adapter / OPTIMIZER_FILE, adapter / ADAPTER_FILE) if asked else None
    return [(path, f"`start` needs the optimizer's state: {why}") for path in asked] if why else []


def _unusable_moments(path: Path, adapter: Path) -> str | None:
    """Why the moments in `path` are not those of the adapter's weights, from the names and shapes of both; None if they are."""
    if not path.is_file():
        return f"{path}: there is no such file; put it there, as a checkpoint of a run has it, or plan `state: fresh`"
    try:
        stored = _shapes(path)
        weights = {_name_in_moments(name): shape for name, shape in _shapes(adapter).items()}
    except (OSError, ValueError) as error:
        return f"{path}: is not a safetensors file beside another one: {error}"
    stored.pop("empty", None)
    if not stored:
        return f"{path}: holds no moments: no step was taken before it was stored"
    wanted = {f"{field}/{name}": [] if field == "step" else shape for name, shape in weights.items() for field in MOMENTS}
    for names, what in (
        (wanted.keys() - stored.keys(), "is missing"),
        (stored.keys() - wanted.keys(), "is of no weight of the start adapter"),
    ):
        if names:
            return f"{path}: `{min(names)}` {what}"
    for name, shape in wanted.items():
        if stored[name] != shape:
            return f"{path}: `{name}` has the shape {stored[name]}, the weight {shape}"
    return None


def _name_in_moments(name: str) -> str:
    """The name that a weight has in a model: an adapter's file leaves out which adapter it is."""
    whole = name.removesuffix(".weight")
    return f"{whole}.default{name.removeprefix(whole)}"


def _shapes(path: Path) -> dict[str, list[int]]:
    """Name -> shape of every tensor in a safetensors file, from its header alone."""
    with path.open("rb") as handle:
        (length,) = struct.unpack("<Q", handle.read(8).ljust(8, b"\xff"))
        header = parse_json(handle.read(length)) if length <= _LONGEST_HEADER else None
    if not isinstance(header, dict):
        raise ValueError(f"{path.name} has no header")
    try:
        return {name: list(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"}
    except (KeyError, TypeError):
        raise ValueError(f"{path.name} has no header") from None


def _read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """(the JSON object in `path`, "") or (None, why there is none)."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        return None, f"{path}: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return None, f"{path}: is not JSON: {error}"
    return (content, "") if isinstance(content, dict) else (None, f"{path}: is not a JSON object")
