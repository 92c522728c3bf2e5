"""Whether calls are read as a model writes them: its chat template writes one, and `tool_calls` must find it.

A model whose calls are in a format that is not known here would have no valid call, as would the model that it is compared with,
and a rule on the difference would hold for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ablation.errors import UsageError
from ablation.plan.measures import AGENT_COUNTS
from ablation.plan.phase2 import Release
from ablation.plan.resources import ThinkingTokens
from ablation.problems.render_chat import Render, Template
from ablation.problems.tool_calls import reads_back
from ablation.problems.tool_schemas import Tool

_SHOWN = 120
_ARGUMENTS = {"some_name": "some value"}


def counts_calls(release: Release | None) -> bool:
    """Whether a guard is about tool calls."""
    return release is not None and any(guard.measure in AGENT_COUNTS for guard in release.guards)


def refuse_unread_calls(template: Template, tools: Sequence[Tool], effort: str, tokens: ThinkingTokens, what: str) -> None:
    """Raise `UsageError` if a call of the first of `tools`, as the template writes it, is not read back."""
    render = Render(template, effort, what)
    name = tools[0].name
    asked = {"role": "user", "content": "?"}
    call = {"type": "function", "id": "call00001", "function": {"name": name, "arguments": _ARGUMENTS}}
    written = render([asked, {"role": "assistant", "content": "", "tool_calls": [call]}], tools, generation=False)
    opened = render([asked], tools)
    start = len(opened) if written.startswith(opened) else _shared(written, render([asked], tools, generation=False))
    turn = re.split("|".join(map(re.escape, tokens.end)), written[start:])[0]
    if not reads_back(turn, name, _ARGUMENTS):
        shown = " ".join(turn.split())
        raise UsageError(
            f"{what}: model.base's chat template writes calls in a way that is not read here: "
            f"{shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '...'}",
            hint="Tool calls of this model cannot be counted; leave out the guards on them. plans/README.md lists what is read.",
        )


def _shared(one: str, other: str) -> int:
    """Characters at the beginning that both have."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
