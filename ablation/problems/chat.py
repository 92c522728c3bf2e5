"""Messages of a chat, as agent states and safety prompts have them: read strictly, kept in the form that chat templates expect.

A message is an object with `role` and `content` (a text). Roles: `system` (first only), `user`, `assistant`, `tool`. An assistant
message may have `reasoning_content` (its thinking) and `tool_calls`, each `{"function": {"name": ..., "arguments": {...}}}` with
`id` and `"type": "function"` if wanted. Every call is answered by one `tool` message before anybody else speaks: by its
`tool_call_id`, or in the order of the calls if that is left out. The last message is one to answer: `user` or `tool`.
"""

from __future__ import annotations

from typing import Any

from ablation.errors import UsageError
from ablation.problems.plain import HALF, fault, parse_line

ROLES = ("system", "user", "assistant", "tool")

_FIELDS = {
    "system": ("content",),
    "user": ("content",),
    "assistant": ("content", "reasoning_content", "tool_calls"),
    "tool": ("content", "tool_call_id", "name"),
}
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


def kind(value: Any) -> str:
    """How messages name what was found."""
    return "null" if value is None else _KINDS.get(type(value), f"a value of type {type(value).__name__}")


def take(values: Any, where: str, known: dict[str, type], needed: tuple[str, ...]) -> dict[str, Any]:
    """`values` as an object with the `needed` fields, no others than the `known`, and each of its type.

    Raises `UsageError` beginning with `where`.
    """
    if not isinstance(values, dict):
        raise UsageError(f"{where}: found {kind(values)}, not an object", hint=f"Known fields: {', '.join(known)}.")
    if unknown := sorted(set(values) - set(known)):
        raise UsageError(f"{where}: unknown field `{unknown[0]}`", hint=f"Known fields: {', '.join(known)}.")
    for name in needed:
        if name not in values:
            raise UsageError(f"{where}: {name}: is missing", hint=f"Needed: {', '.join(needed)}.")
    for name, value in values.items():
        if not isinstance(value, list) and (found := fault(value)):  # the items of a list are read one by one
            hint = "Write the text as UTF-8." if found == HALF else "Plain JSON values, nested less deeply."
            raise UsageError(f"{where}: {name}: {found}", hint=hint)
        if not isinstance(value, known[name]) or (isinstance(value, bool) and known[name] is not bool):
            raise UsageError(f"{where}: {name}: found {kind(value)}, not {_KINDS[known[name]]}", hint="See plans/README.md.")
    return values


def read_messages(values: Any, where: str) -> tuple[dict[str, Any], ...]:
    """The messages of `values`, with the arguments of calls as objects and the name of its call in every tool message.

    Raises `UsageError` that begins with `where` and names the message and its field.
    """
    if not isinstance(values, list) or not values:
        found = "an empty list" if values == [] else kind(values)
        raise UsageError(f"{where}: found {found}, not a list of messages", hint='[{"role": "user", "content": "..."}]')
    messages: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []  # calls without a result so far
    for place, value in enumerate(values):
        at = f"{where}[{place}]"
        message = _message(value, at, place)
        if message["role"] == "tool":
            _answer(message, waiting, at)
        elif waiting:
            call = waiting[0]["function"]["name"]
            raise UsageError(
                f"{at}: {message['role']} speaks before the call of `{call}` has a result",
                hint="Every call is followed by a message of role `tool` with what came of it.",
            )
        waiting = waiting or list(message.get("tool_calls", ()))
        messages.append(message)
    if waiting:
        raise UsageError(
            f"{where}: the call of `{waiting[0]['function']['name']}` has no result",
            hint="End with it: a message of role `tool`.",
        )
    if messages[-1]["role"] not in ("user", "tool"):
        raise UsageError(
            f"{where}: the last message is of role `{messages[-1]['role']}`, so there is nothing for the model to answer",
            hint="End where the model is to speak: after a message of role `user` or `tool`.",
        )
    if all(message["role"] != "user" for message in messages):
        raise UsageError(f"{where}: no message is of role `user`", hint="Chat templates need the user's request.")
    return tuple(messages)


def messages_text(messages: tuple[dict[str, Any], ...]) -> str:
    """All that is said, a line a message: what makes two lists of messages the same to the ledger."""
    lines = []
    for message in messages:
        calls = "".join(f" {call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls", ()))
        lines.append(f"{message['role']}: {message['content']}{calls}")
    return "\n".join(lines)


def _message(value: Any, at: str, place: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{at}: found {kind(value)}, not an object", hint='{"role": "user", "content": "..."}')
    role = value.get("role")
    if role not in ROLES:
        found = "is missing" if role is None else f"unknown role {role!r}"
        raise UsageError(f"{at}: role: {found}", hint=f"Roles: {', '.join(ROLES)}.")
    if role == "system" and place:
        raise UsageError(
            f"{at}: role: `system` after the first message", hint="Many chat templates refuse or move it: put it first."
        )
    calls = value.get("tool_calls")
    if role == "assistant":
        value = {name: one for name, one in value.items() if one is not None}  # what programs write for nothing
    known: dict[str, type] = {"role": str} | dict.fromkeys(_FIELDS[role], str)
    if role == "assistant":
        known["tool_calls"] = list
    message = dict(take(value, at, known, ("role",) if calls else ("role", "content")))
    message.setdefault("content", "")
    if role == "user" and not message["content"].strip():
        raise UsageError(f"{at}: content: is empty", hint="The user says something.")
    if "tool_calls" in message:
        message["tool_calls"] = _calls(message["tool_calls"], f"{at}: tool_calls")
    elif role == "assistant" and not message["content"].strip():
        raise UsageError(f"{at}: neither content nor tool_calls", hint="An assistant's message says or does something.")
    return message


def _calls(values: list[Any], at: str) -> list[dict[str, Any]]:
    if not values:
        raise UsageError(f"{at}: found an empty list", hint="Leave tool_calls out where there are none.")
    calls: list[dict[str, Any]] = []
    seen: set[str] = set()
    for place, value in enumerate(values):
        here = f"{at}[{place}]"
        call = take(value, here, {"id": str, "type": str, "function": dict}, ("function",))
        if call.get("type", "function") != "function":
            raise UsageError(f"{here}: type: found `{call['type']}`", hint="Only functions can be called.")
        if call.get("id") in seen:
            raise UsageError(f"{here}: id: `{call['id']}` was used before in this message", hint="Give every call its own id.")
        if "id" in call:
            seen.add(call["id"])
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str):  # as APIs give them
            function["arguments"] = parse_line(function["arguments"].encode("utf-8", "replace"), f"{here}: arguments")
        function = take(function, f"{here}: function", {"name": str, "arguments": dict}, ("name", "arguments"))
        if not function["name"].strip():
            raise UsageError(f"{here}: function: name: is empty", hint="Name the function that was called.")
        calls.append({"type": "function"} | {name: call[name] for name in ("id",) if name in call} | {"function": function})
    return calls


def _answer(message: dict[str, Any], waiting: list[dict[str, Any]], at: str) -> None:
    """Take the call that `message` answers from `waiting`, and put its name into the message."""
    wanted = message.get("tool_call_id")
    place = next((i for i, call in enumerate(waiting) if wanted is None or call.get("id", wanted) == wanted), None)
    if place is None:
        said = "is a result without a call" if wanted is None or not waiting else f"tool_call_id: no call `{wanted}` is waiting"
        raise UsageError(f"{at}: {said}", hint="A tool message follows the assistant's call that it answers.")
    name = waiting.pop(place)["function"]["name"]
    if message.setdefault("name", name) != name:
        raise UsageError(f"{at}: name: found `{message['name']}`, but it answers the call of `{name}`", hint="Leave it out.")
