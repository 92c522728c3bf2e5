"""The field tables of plans/README.md, made from the types, so that the reference cannot go stale.

`python -m ablation.plan.reference plans/README.md plans/tessera.yaml` writes them between the marks in that file.
"""

from __future__ import annotations

import json
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ablation.plan.load import load_plan
from ablation.plan.model import Plan
from ablation.plan.section import LARGEST

MARK = re.compile(r"(<!-- fields of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# Examples for what the example plan leaves at its default because the study did not have it.
EXAMPLES = {
    ("Arm", "finish_push"): 0.1,
    ("Arm", "advantages"): "positive",
    ("Arm", "learning_rate"): 1e-5,
    ("Arm", "kl"): {"beta": 0.05},
    ("Arm", "truncated"): "apart",
    ("Arm", "truncation_penalty"): 0.5,
    ("Arm", "clip"): {"low": 0.2, "high": 0.28},
    ("Arm", "reward"): {"length_bonus": 0.0},
    ("Arm", "optimizer"): {"beta2": 0.999},
    ("Arm", "external"): {"command": ["python3", "train.py"], "each": "update"},
    ("External", "command"): ["python3", "train.py", "--rank-loss"],
    ("External", "each"): "update",
    ("External", "timeout_minutes"): 90,
    ("External", "files"): [{"at": "train.py", "sha256": "9f86d081..."}],
    ("KLAnchor", "damp_only"): True,
    ("Clip", "low"): 0.2,
    ("Clip", "high"): 0.28,
    ("ArmReward", "length_bonus"): 0.0,
    ("ArmReward", "loop_penalty"): 0.1,
    ("ArmAdam", "name"): "adamw",
    ("ArmAdam", "state"): "start",
    ("ArmAdam", "beta1"): 0.9,
    ("ArmAdam", "beta2"): 0.999,
    ("ArmAdam", "eps"): 1e-6,
    ("ArmAdam", "weight_decay"): 0.01,
    ("ArmAdam", "max_grad_norm"): 1.0,
    ("Adam", "max_grad_norm"): 1.0,
    ("Extension", "damage"): [{"name": "looping_gained", "measure": "looping", "compare": "change", "op": ">=", "limit": 12}],
    ("Extension", "selection"): {"rollouts": 54},
    ("Resource", "sha256"): "9f86d081...",
    ("Verdict", "claims"): {"cleaner": {"subjects": ["N"], "reference": "C", "measure": "clean", "side": "greater"}},
    ("Verdict", "unread"): {"at_most": 0.5, "differ_at_most": 0.2},
    ("UnreadLimits", "at_most"): 0.5,
    ("UnreadLimits", "differ_at_most"): 0.2,
    ("Row", "label"): "NO_WIN",
    ("Row", "when"): {"none": [{"rules": "all"}]},
    ("Condition", "all"): [{"rule": "correct_kept"}, {"rule": "fewer_tokens"}],
    ("Condition", "any"): [{"rule": "correct_kept"}, {"rule": "fewer_tokens"}],
    ("Condition", "none"): [{"rule": "few_looping"}],
    ("Condition", "rule"): "correct_kept",
    ("Condition", "rules"): "all",
    ("Condition", "of"): "blinded_read",
    ("Condition", "label"): "PASSED",
    ("Condition", "reason"): "CONTROL_NOT_DAMAGED",
    ("HeldOut", "efforts"): ["low", "xhigh"],
    ("NeverUsed", "efforts"): ["low", "xhigh"],
    ("Evaluation", "family"): "main",
    ("Loops", "novelty"): 0.15,
    ("Guard", "name"): "agent_turn",
    ("Guard", "measure"): "agent_turn",
    ("Guard", "compare"): "ratio",
    ("Guard", "op"): "<=",
    ("Guard", "limit"): 1.25,
    ("Guard", "on"): "agent",
    ("Policy", "also"): ["vllm"],
    ("Release", "main"): {"rollouts": 236},
    ("Release", "agent"): {"rollouts_per_state": 4},
    ("Release", "safety"): {"efforts": ["low", "xhigh"]},
    ("MainSet", "rollouts"): 236,
    ("MainSet", "problems"): {"at": "main.jsonl", "sha256": "9f86d081..."},
    ("MainSet", "rules"): [{"name": "more_correct", "measure": "correct", "compare": "change", "op": ">", "limit": 0}],
    ("MainSet", "efforts"): ["xhigh"],
    ("MainSet", "table"): "study",
    ("AgentSet", "states"): {"at": "states.jsonl", "sha256": "9f86d081..."},
    ("AgentSet", "rollouts_per_state"): 4,
    ("AgentSet", "effort"): "xhigh",
    ("SafetySet", "prompts"): {"at": "safety.jsonl", "sha256": "9f86d081..."},
    ("SafetySet", "efforts"): ["low", "xhigh"],
    ("SafetySet", "raters"): 1,
    ("SafetySet", "retries"): 2,
    ("Claim", "subjects"): ["N", "X"],
    ("Claim", "reference"): "C",
    ("Claim", "measure"): "clean",
    ("Claim", "side"): "greater",
    ("Claim", "method"): "cluster_bootstrap",
    ("Claim", "alpha"): 0.05,
    ("Claim", "correction"): "holm",
    ("Claim", "families"): ["main", "replication"],
    ("Selection", "problems"): {"at": "selection.jsonl", "sha256": "9f86d081..."},
    ("Selection", "rollouts"): 54,
    ("Selection", "efforts"): ["low", "medium", "xhigh"],
    ("Selection", "require"): [{"name": "few_looping", "measure": "looping", "compare": "value", "op": "<=", "limit": 3}],
    ("Selection", "prefer"): [{"measure": "correct", "order": "highest"}],
    ("Selection", "tie"): "later",
    ("Preference", "measure"): "truncated_or_looping",
    ("Preference", "order"): "lowest",
    ("Resource", "owed"): "not published yet",
    ("Policy", "vllm"): {"sequences": 512},
    ("Policy", "tinker"): {"base_model": "Qwen/Qwen3-8B"},
    ("Tinker", "base_model"): "Qwen/Qwen3-8B",
    ("Tinker", "in_flight"): 512,
    ("Tinker", "mismatch"): 0.03,
    ("Plan", "prices"): {"currency": "EUR"},
    ("Prices", "currency"): "EUR",
    ("Prices", "device_hour"): {"h200": 2.5, "cpu": 0.04},
    ("Prices", "million_tokens"): {"sample": 4.5},
    ("TokenPrices", "prefill"): 1.5,
    ("TokenPrices", "sample"): 4.5,
    ("TokenPrices", "train"): 5.25,
    ("Vllm", "context"): 40960,
    ("Vllm", "engine"): "server",
    ("Vllm", "replicas"): 4,
    ("Vllm", "sequences"): 512,
    ("Vllm", "batch_tokens"): 16384,
    ("Vllm", "kv_cache_gb"): 48.0,
    ("Vllm", "tensor_parallel"): 2,
    ("Vllm", "eager"): True,
    ("Vllm", "mismatch"): 0.03,
}
NAME = "name: letters, digits, `-`, `_`, at most 40"
_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}


def sections() -> dict[str, type[BaseModel]]:
    """Name -> section, the plan first, then in the order in which fields lead to them."""
    found: dict[str, type[BaseModel]] = {}

    def visit(section: type[BaseModel]) -> None:
        if section.__name__ in found:
            return
        found[section.__name__] = section
        for info in section.model_fields.values():
            for inner in _sections_in(info.annotation):
                visit(inner)

    visit(Plan)
    return found


def table(section: type[BaseModel], plan: Plan) -> str:
    """A Markdown table of the fields of `section`, with examples from `plan`."""
    lines = ["| field | type | default | example | meaning |", "|---|---|---|---|---|"]
    for name, info in section.model_fields.items():
        example = EXAMPLES.get((section.__name__, name), _example(plan, section, name))
        meaning = " ".join((info.description or "").split())
        shown = "" if _is_section(example) else _shown(example)
        cells = [f"`{name}`", type_in_words(info), default_in_words(info), shown, meaning]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def fill(text: str, plan: Plan) -> str:
    """`text` with every table between its marks written anew."""
    known = sections()
    return MARK.sub(lambda found: found[1] + table(known[found[2]], plan) + found[3], text)


def type_in_words(info: FieldInfo) -> str:
    """For instance `whole number >= 1` or `list of [Rule](#rule)`."""
    return _type(info.annotation) + " and".join(filter(None, map(_limit, info.metadata)))


def _type(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0]) + "".join(_limit(item) for item in arguments[1:])
    if origin is typing.Literal:
        return " or ".join(_code(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        members = list(dict.fromkeys(_type(argument) for argument in arguments))
        return "number" if set(members) == {"number", "whole number"} else " or ".join(members)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"mapping of {_type(arguments[0])} to {_type(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return _WORDS[annotation]


def _limit(item: Any) -> str:
    text = ""
    for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
        value = getattr(item, name, None)
        if value is not None and value != LARGEST:  # a bound that every number has
            text += f"{' and' if text else ''} {sign} {'2^63' if value == 2**63 else value}"
    text += " and".join(filter(None, map(_limit, getattr(item, "metadata", None) or [])))
    pattern = getattr(item, "pattern", None)
    if pattern:
        known = {"0-9a-f": "64 lower-case hex digits", "[A-Z]{3}": "three capitals", "^[A-Z]": "capitals, digits and `_`"}
        text += f" ({next((words for part, words in known.items() if part in pattern), NAME)})"
    return text


def _sections_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in typing.get_args(annotation) for section in _sections_in(argument)]


def default_in_words(info: FieldInfo) -> str:
    """For instance `required` or the value in code quotes."""
    if info.is_required():
        return "required"
    if info.default_factory in (list, dict):
        return _code(info.default_factory())
    return "its own defaults" if info.default_factory is not None else _code(info.default)


def _example(tree: Any, section: type[BaseModel], name: str) -> Any:
    """The first value of `section.name` in the example plan."""
    if isinstance(tree, section):
        return getattr(tree, name)
    children: list[Any] = []
    if isinstance(tree, BaseModel):
        children = [getattr(tree, field) for field in type(tree).model_fields]
    elif isinstance(tree, dict):
        children = list(tree.values())
    elif isinstance(tree, list):
        children = tree
    for child in children:
        value = _example(child, section, name)
        if value is not None:
            return value
    return None


def _is_section(value: Any) -> bool:
    """Sections have tables of their own."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return any(isinstance(item, BaseModel) for item in inner)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = {key: item[:2] if isinstance(item, list) else item for key, item in value.items()}
    text = json.dumps(value[:3] if isinstance(value, list) else value, ensure_ascii=False)
    return f"`{text}`" if len(text) <= 100 else f"`{text[:97]}...`"


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


if __name__ == "__main__":
    readme, example = Path(sys.argv[1]), Path(sys.argv[2])
    readme.write_text(fill(readme.read_text(), load_plan(example).plan))
