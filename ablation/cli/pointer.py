"""`--at PLACE`: one value out of what `--json` would print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

HELP = "Print only the value at this place of the JSON (RFC 6901), for instance /labels/replication; may be given again."


def print_at(content: Any, places: Sequence[str]) -> None:
    """Print each value on a line of its own. Raises `UsageError` for a place that is not there."""
    for value in [value_at(content, place) for place in places]:
        typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def value_at(content: Any, place: str) -> Any:
    """The value that the JSON pointer `place` names."""
    from ablation.errors import UsageError
    from ablation.plan.section import did_you_mean

    if place and not place.startswith("/"):
        raise UsageError(f"--at {place}: a place begins with `/`, as /{place} does")
    found = content
    for token in place.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            known = list(found) if isinstance(found, dict) else []
            hint = "There is nothing below it."
            if known:
                hint = f"There are: {', '.join(map(str, known[:20]))}."
            elif isinstance(found, list):
                hint = f"There is a list of {len(found)}, counted from 0."
            raise UsageError(f"--at {place}: there is no `{name}`{did_you_mean(name, known)}", hint=hint)
    return found
