"""The text of a plan under another name."""

from __future__ import annotations

import json
import re
from pathlib import Path

_SCALAR = re.compile(r"""[A-Za-z0-9_-]+|"[^"\\\n]*"|'[^'\n]*'""")
"""A plan's name as it stands in nearly every file: plain or in quotes, on one line."""


def name_in_yaml(name: str) -> str:
    """`name` as YAML reads it back: in quotes if it looks like a number or another word with a meaning."""
    from ablation.plan.yaml_reader import resolve_scalar

    try:
        plain = resolve_scalar(name) == name
    except ValueError:
        plain = False
    return name if plain else json.dumps(name)


def renamed(start: Path, path: Path, name: str) -> bytes:
    """The bytes of the valid plan `start` with `name` as its name, to be written to `path`; nothing else differs.

    Raises `PlanError` if `start` is not valid; `UsageError` if its name is written in a way that cannot be replaced, or files
    that it names relative to itself would not be found from `path`.
    """
    from ablation.errors import UsageError
    from ablation.plan.canonical import canonical_tree
    from ablation.plan.load import load_plan, parse_plan
    from ablation.plan.locate import SCHEMES, resources_of

    loaded = load_plan(start)
    if start.parent.resolve() != path.parent.resolve():
        lost = [one.at for one in resources_of(loaded.plan).values() if not one.at.startswith(SCHEMES) and one.at[:1] != "/"]
        if lost:
            raise UsageError(
                f"{start}: names files relative to its own folder: {', '.join(lost)}",
                hint=f"Write the copy beside it: --folder {start.parent}",
            )
    line, column = loaded.document.values[("name",)]
    mark = b"\xef\xbb\xbf" if loaded.data.startswith(b"\xef\xbb\xbf") else b""
    lines = re.split(r"(\r\n|\r|\n)", loaded.data.removeprefix(mark).decode())  # text, line end, text, ...
    text = lines[2 * (line - 1)]
    found = _SCALAR.match(text, column - 1)
    if found is not None:
        lines[2 * (line - 1)] = text[: column - 1] + name_in_yaml(name) + text[found.end() :]
        data = mark + "".join(lines).encode()
        if canonical_tree(parse_plan(path, data).plan) == canonical_tree(loaded.plan) | {"name": name}:
            return data
    raise UsageError(f"{start}:{line}:{column}: name: cannot be replaced; write `name: {loaded.plan.name}` on one line")
