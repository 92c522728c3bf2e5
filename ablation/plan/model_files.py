"""What the JSON files of a model folder say, against the plan: found before locking, without loading any weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ablation.plan.locate import locate
from ablation.plan.model import Plan

Problem = tuple[tuple[str | int, ...], str]
ADAPTER_CONFIG = "adapter_config.json"
BASE_CONFIG = "config.json"
# What an adapter may have beside its shape that changes what it computes or what is trained. Plans describe plain LoRA only.
_PLAIN = {
    "peft_type": "LORA",
    "bias": "none",
    "use_dora": False,
    "use_rslora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "layers_to_transform": None,
    "trainable_token_indices": None,
}


def model_problems(plan: Plan, plan_path: Path) -> list[Problem]:
    """(path in the plan, what is wrong) for the model folders that are at hand; what is missing or owed is passed over."""
    problems: list[Problem] = []
    base, adapter = (locate(one, plan_path) for one in (plan.model.base, plan.model.start_adapter))
    if plan.model.base.owed is None and base.is_dir():
        problems += base_problems(plan, base)
    if plan.model.start_adapter.owed is None and adapter.is_dir():
        problems += adapter_problems(plan, adapter)
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
    for name, plain in _PLAIN.items():
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


def _read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """(the JSON object in `path`, "") or (None, why there is none)."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        return None, f"{path}: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return None, f"{path}: is not JSON: {error}"
    return (content, "") if isinstance(content, dict) else (None, f"{path}: is not a JSON object")
