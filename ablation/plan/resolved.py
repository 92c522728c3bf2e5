"""A plan written out again with every default, as YAML that reads back to the same plan."""

from __future__ import annotations

import json
from typing import Any

from ablation.plan.model import Plan


def resolved_yaml(plan: Plan) -> str:
    """`plan` as YAML. Texts are always in JSON's quotes, so that no reader can take one for a number."""
    return yaml_block(terse_tables(plan.model_dump()))


def terse_tables(value: Any, in_table: bool = False) -> Any:
    """Plain data of a plan in which the rows of decision tables are without the forms of a condition that they do not use."""
    if isinstance(value, dict):
        shown = {key: item for key, item in value.items() if not (in_table and item is None)}
        return {key: terse_tables(item, in_table or (key == "table" and isinstance(item, list))) for key, item in shown.items()}
    if isinstance(value, list):
        return [terse_tables(item, in_table) for item in value]
    return value


def yaml_block(value: dict[str, Any]) -> str:
    """Plain data as YAML, written like a resolved plan."""
    return "\n".join(_block(value, 0)) + "\n"


def _block(value: dict[str, Any], depth: int) -> list[str]:
    lines = []
    for key, item in value.items():
        head = f"{'  ' * depth}{_key(key)}:"
        if isinstance(item, dict) and item:
            lines += [head, *_block(item, depth + 1)]
        elif isinstance(item, list) and any(isinstance(entry, dict) for entry in item):
            lines += [head, *(f"{'  ' * (depth + 1)}- {_flow(entry)}" for entry in item)]
        else:
            lines.append(f"{head} {_flow(item)}")
    return lines


def _key(key: str) -> str:
    return key if key.isidentifier() and key.lower() not in ("true", "false", "null") else _flow(key)


def _flow(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
