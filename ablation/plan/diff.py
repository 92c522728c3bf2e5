"""Two resolved plans side by side, field by field."""

from __future__ import annotations

import json
from typing import Any

from ablation.plan.resolved import terse_tables

_ABSENT = object()
_CELLS = "problems.cells."
_NAMED = 8
"""Ids of cells that a line names; of more it says how many."""
_LONG = 60
"""Characters of a value that a line shows whole."""


def diff_trees(old: dict[str, Any], new: dict[str, Any], *, full: bool = False) -> list[str]:
    """One line `  field.path: old -> new` for every value that differs, in the order of the plan; of cells a line an effort.

    Of a long value only its size is told, unless `full`.
    """
    lines: list[str] = []

    def walk(before: Any, after: Any, path: str) -> None:
        if isinstance(before, dict) and isinstance(after, dict):
            for key in [*after, *(key for key in before if key not in after)]:
                walk(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}.{key}" if path else key)
        elif path.startswith(_CELLS) and not _same(before, after):
            lines.append(f"  {path}: {_cells(before, after)}")
        elif isinstance(before, list) and isinstance(after, list) and not path.startswith("order."):
            for index in range(max(len(before), len(after))):
                a = before[index] if index < len(before) else _ABSENT
                b = after[index] if index < len(after) else _ABSENT
                walk(a, b, f"{path}[{index}]")
        elif not _same(before, after):
            lines.append(f"  {path}: {_shown(before, full)} -> {_shown(after, full)}")

    walk(terse_tables(old), terse_tables(new), "")
    return lines


def added_only(old: Any, new: Any) -> bool:
    """True if `new` has everything that `old` has, and beyond it only fields of mappings."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and added_only(value, new[key]) for key, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(added_only(a, b) for a, b in zip(old, new, strict=True))
    return _same(old, new)


def _same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)  # True == 1


def _cells(before: Any, after: Any) -> str:
    """`20 ids -> 4 ids: without p04, p05`, for the cells of one effort."""
    sizes = " -> ".join("(not there)" if ids is _ABSENT else f"{len(ids)} id{'s' * (len(ids) != 1)}" for ids in (before, after))
    if before is _ABSENT or after is _ABSENT:
        return sizes
    gone, come = ([one for one in ids if one not in other] for ids, other in ((before, after), (after, before)))
    parts = [f"{word} {_listed(ids)}" for word, ids in (("without", gone), ("with", come)) if ids]
    return f"{sizes}: {'; '.join(parts) or 'in another order'}"


def _listed(ids: list[str]) -> str:
    more = [f"and {len(ids) - _NAMED} more"] if len(ids) > _NAMED else []
    return ", ".join([*ids[:_NAMED], *more])


def shortened(lines: list[str], most: int = 12) -> list[str]:
    """The first of many lines, and how many more there are."""
    return lines if len(lines) <= most + 1 else [*lines[:most], f"  and {len(lines) - most} more differences"]


def _shown(value: Any, full: bool) -> str:
    if value is _ABSENT:
        return "(not there)"
    text = json.dumps(value, ensure_ascii=False)
    if full or len(text) <= _LONG:
        return text
    if isinstance(value, dict):
        names = ", ".join([*list(value)[:4], *(["..."] if len(value) > 4 else [])])
        return f"{{{names}}} ({len(value)} field{'s' * (len(value) != 1)})"
    if isinstance(value, list):
        return f"[...] ({len(value)} entr{'y' if len(value) == 1 else 'ies'})"
    return f'{text[: _LONG - 4]}..."'
