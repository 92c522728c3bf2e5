"""What the JSON files of a model folder say, against the plan: found before locking, without loading any weight."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
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
PLAIN_LORA: dict[str, tuple[Any, ...] | None] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian"),  # those of which nothing is left once the weights are read from the file
    "r": None,
    "lora_alpha": None,
    "target_modules": None,
    "lora_dropout": None,  # sampling and training leave it out
    "base_model_name_or_path": None,
    "revision": None,
    "task_type": None,
    "auto_mapping": None,
    "inference_mode": None,
    "peft_version": None,
    "megatron_core": None,  # of use with megatron_config alone
    "qalora_group_size": None,  # of use with use_qalora alone
}
"""Field of an adapter's config -> what it may say (None: anything). A field that is not here must be empty, false or null, also
one that a later peft brings: plans describe plain LoRA only, and only that is sampled, trained and merged."""
_TENSOR = re.compile(r"(?P<module>.+)\.lora_(?P<half>[AB])\.weight")


def not_plain(config: dict[str, Any]) -> list[str]:
    """What the config of an adapter says that plain LoRA does not, for instance `use_dora true`."""
    said = {name: (there, PLAIN_LORA.get(name, ())) for name, there in sorted({"peft_type": "", **config}.items())}
    return [
        f"{name} {json.dumps(there)}"
        for name, (there, allowed) in said.items()
        if allowed is not None and there not in allowed and (there or name == "peft_type")
    ]


def model_problems(plan: Plan, plan_path: Path) -> list[Problem]:
    """(path in the plan, what is wrong) for the model folders that are at hand; what is missing or owed is passed over."""
    problems: list[Problem] = []
    base, adapter = (locate(one, plan_path) for one in (plan.model.base, plan.model.start_adapter))
    if plan.model.base.owed is None and base.is_dir():
        problems += base_problems(plan, base)
    if plan.model.start_adapter.owed is None and adapter.is_dir():
        problems += adapter_problems(plan, adapter) or tensor_problems(plan, adapter)
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
    for said in not_plain(config):
        problems.append((("model", "start_adapter"), f"{adapter / ADAPTER_CONFIG} has {said}; a plan describes plain LoRA"))
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


def tensor_problems(plan: Plan, adapter: Path) -> list[Problem]:
    """What the start adapter's file holds beside pairs of the plan's rank for the plan's targets, or lacks of them."""
    path, lora = adapter / ADAPTER_FILE, plan.model.lora
    try:
        shapes = _shapes(path)
    except (OSError, ValueError) as error:
        return [(("model", "start_adapter"), f"{path}: is not a safetensors file: {error}")]
    found: dict[str, set[str]] = {}
    texts = []
    for name, shape in sorted(shapes.items()):
        match = _TENSOR.fullmatch(name)
        if match is None:
            texts.append(f"`{name}` is no weight of plain LoRA")
            continue
        found.setdefault(match["module"], set()).add(match["half"])
        if len(shape) != 2 or shape[match["half"] == "B"] != lora.rank:
            texts.append(f"`{name}` has the shape {shape}; the plan's rank is {lora.rank}")
    texts += [f"`{module}` has no lora_{min({'A', 'B'} - halves)}" for module, halves in found.items() if len(halves) < 2]
    texts += [f"`{module}` is none of the plan's targets" for module in found if not _is_target(module, lora.targets)]
    texts += [
        f"holds nothing for the target `{one}`" for one in lora.targets if not any(_is_target(name, [one]) for name in found)
    ]
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return [(("model", "start_adapter"), f"{path}: {texts[0]}{more}")] if texts else []


def _is_target(module: str, targets: Sequence[str]) -> bool:
    return any(module == one or module.endswith(f".{one}") for one in targets)


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
