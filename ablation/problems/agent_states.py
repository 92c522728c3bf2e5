"""Frozen agent states: messages and tools of one moment of an agent's task, at which two models are asked for their next turn.

JSON Lines, one state a line: `id`, `task` (states of one task are not independent: intervals resample tasks), `messages` (see
`problems.chat`), `tools` (see `problems.tool_schemas`) and, if wanted, `effort` (else the plan's), `past_thinking` and
`parallel_tool_calls`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.problems.chat import messages_text, read_messages, take
from ablation.problems.plain import parse_line, shown
from ablation.problems.problem import Problem
from ablation.problems.tool_schemas import Tool, read_tools

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,99}")
NAME_HINT = "Letters, digits and . _ / + -, at most 100, no spaces."

_FIELDS: dict[str, type] = {
    "id": str,
    "task": str,
    "messages": list,
    "tools": list,
    "effort": str,
    "past_thinking": str,
    "parallel_tool_calls": bool,
}
_NEEDED = ("id", "task", "messages", "tools")
PAST_THINKING = ("drop", "keep")


@dataclass(frozen=True)
class AgentState:
    """One frozen moment."""

    id: str
    task: str
    messages: tuple[dict[str, Any], ...]
    """In the form that chat templates take; arguments of calls are objects."""
    tools: tuple[Tool, ...]
    effort: str | None = None
    """None: the plan's."""
    past_thinking: str = "drop"
    """`drop`: what the assistant thought before is not shown to the model. `keep`: it is."""
    parallel_tool_calls: bool = True
    """Whether a turn may call more than one tool."""

    def as_problem(self) -> Problem:
        """The state as the ledger marks it; its task is the source. Nothing grades it."""
        return Problem(self.id, self.task, messages_text(self.messages), "exact", "")


def load_states(path: Path) -> dict[str, AgentState]:
    """States by id, in file order. Empty lines are skipped.

    Raises:
        UsageError: naming file, line and field of the first fault; an id or a whole state that came before; a file with none.
    """
    path = Path(path)
    states: dict[str, AgentState] = {}
    lines: dict[str, int] = {}
    same: dict[str, str] = {}
    for number, values in json_lines(path, "agent states"):
        where = f"{path}:{number}"
        state = _state(values, where)
        if state.id in states:
            raise UsageError(
                f"{where}: id: `{state.id}` was used before, in line {lines[state.id]}", hint="Give every state its own id."
            )
        text = json.dumps([values["messages"], values["tools"], state.effort, state.past_thinking], sort_keys=True)
        if other := same.get(text):
            hint = "Rollouts of one state are not more evidence under two names: leave it out."
            raise UsageError(f"{where}: `{state.id}` is `{other}` under another id", hint=hint)
        states[state.id], lines[state.id], same[text] = state, number, state.id
    if not states:
        raise UsageError(f"{path}: there is no agent state in this file", hint=f"One JSON object a line: {', '.join(_NEEDED)}.")
    return states


def json_lines(path: Path, what: str) -> Iterator[tuple[int, Any]]:
    """(line, value) of every line of `path` that is not empty. Raises `UsageError`."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(
            f"{path}: could not be read: {error.strerror or error}", hint=f"Check the path of the {what}."
        ) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, parse_line(line, f"{path}:{number}")


def check_name(value: str, where: str) -> None:
    """Raise `UsageError` if `value` is not an id."""
    if not NAME.fullmatch(value):
        raise UsageError(f"{where}: `{shown(value)}` is not an id", hint=NAME_HINT)


def _state(values: Any, where: str) -> AgentState:
    take(values, where, _FIELDS, _NEEDED)
    for name in ("id", "task"):
        check_name(values[name], f"{where}: {name}")
    if "effort" in values:
        check_name(values["effort"], f"{where}: effort")
    past = values.get("past_thinking", "drop")
    if past not in PAST_THINKING:
        raise UsageError(f"{where}: past_thinking: found `{shown(past)}`", hint=f"One of {', '.join(PAST_THINKING)}.")
    return AgentState(
        id=values["id"],
        task=values["task"],
        messages=read_messages(values["messages"], f"{where}: messages"),
        tools=read_tools(values["tools"], f"{where}: tools"),
        effort=values.get("effort"),
        past_thinking=past,
        parallel_tool_calls=values.get("parallel_tool_calls", True),
    )
