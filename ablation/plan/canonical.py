"""The canonical form of a plan and its digest: the plan's identity.

The form is the typed plan with every default written out, as RFC 8785 JSON: layout, comments, quoting, `1` or `1.0`
for a number make no difference, every value does. A field that came `later` is in it only with another value than its
default. RFC 8785 sorts keys, but the order of arms, families and cells is part of a plan, so the form lists it under
`order`. Integers beyond 2^53 - 1 (seeds may be) are written as text.
"""

from __future__ import annotations

from typing import Any

import rfc8785
from pydantic import BaseModel

from ablation.files import sha256_bytes

_MAX_SAFE = 2**53 - 1  # RFC 8785, section 3.2.2.3: larger integers are not the same number in every reader


def canonical_tree(plan: BaseModel) -> dict[str, Any]:
    """The plan as plain data with all defaults, plus `order`: path of each mapping of the user's names -> those names."""
    order: dict[str, list[str]] = {}

    def plain(value: Any, path: str) -> Any:
        if isinstance(value, BaseModel):
            return {name: plain(getattr(value, name), f"{path}.{name}" if path else name) for name in _names(value)}
        if isinstance(value, dict):
            order[path] = list(value)
            return {key: plain(item, f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_SAFE:
            return str(value)
        return value

    tree = plain(plan, "")
    return {**tree, "order": order}


def _names(section: BaseModel) -> list[str]:
    """The fields of a section that are in the canonical form: all but `later` ones that have their default."""
    fields, later = type(section).model_fields, getattr(type(section), "later", ())

    def is_default(name: str) -> bool:
        return getattr(section, name) == fields[name].get_default(call_default_factory=True)

    return [name for name in fields if not (name in later and is_default(name))]


def canonical_bytes(tree: Any) -> bytes:
    """`tree` as RFC 8785 JSON."""
    return rfc8785.dumps(tree)


def tree_digest(tree: Any) -> str:
    """SHA-256 of the RFC 8785 form of `tree`."""
    return sha256_bytes(canonical_bytes(tree))


def plan_digest(plan: BaseModel) -> str:
    """The plan's identity."""
    return tree_digest(canonical_tree(plan))
