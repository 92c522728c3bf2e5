"""The tool calls in a visible answer, and whether they are valid: a known function, and arguments that its JSON Schema allows.

Three ways of writing calls are read:

- `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, Qwen);
- `<function=NAME><parameter=KEY>VALUE</parameter></function>`, with or without `<tool_call>` around it (Qwen3-Coder). A value is
  text; it is taken as JSON where its schema does not allow a text;
- an answer that is nothing but one JSON object or list of objects with `name` and `arguments` or `parameters`, with or without a
  code fence or the marks `[TOOL_CALLS]` and `<|python_tag|>`.

Whatever the text, nothing is raised: what cannot be read is a call that is not valid, with a reason of `REASONS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ablation.problems.agent_states import AgentState
from ablation.problems.plain import LARGEST, fault
from ablation.problems.tool_schemas import Tool

REASONS = {
    "no_answer": "there is no visible answer",
    "text_only": "the visible answer calls nothing",
    "unclosed": "a call that does not end",
    "malformed": "a call that is not in its format",
    "unknown_tool": "a function that the state does not offer",
    "missing_required": "an argument that must be there is missing",
    "unknown_argument": "an argument that the function does not have",
    "wrong_type": "an argument of another type",
    "wrong_value": "an argument that its schema does not allow",
    "too_deep": "arguments that are nested too deeply",
    "several_calls": "more calls than the one that the state allows",
}
"""Why a turn has no valid call; the first two are turns without a call."""

MAX_DEPTH = 50
"""Of arguments: deeper ones could not be held against a schema that refers to itself."""
_SHOWN = 160
_ORDER = ("missing_required", "unknown_argument", "wrong_type", "wrong_value")
_BY_KEYWORD = {
    "required": "missing_required",
    "dependentRequired": "missing_required",
    "additionalProperties": "unknown_argument",
    "unevaluatedProperties": "unknown_argument",
    "propertyNames": "unknown_argument",
    "type": "wrong_type",
}
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile(r"<tool_call>|<function=")
_FUNCTION = re.compile(r"\s*<function=([^<>\n]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]*)>")
_BARE = re.compile(r"(\[TOOL_CALLS\]|<\|python_tag\|>)?\s*(?:```(?:json)?[ \t]*\n(.*?)\n[ \t]*```|(.*))", re.DOTALL)
_PYTHON = {"True": True, "False": False, "None": None}


@dataclass(frozen=True)
class Call:
    """One call in an answer; `reason` is None if it is valid."""

    name: str | None
    arguments: dict[str, Any] | None
    """None if it is not valid."""
    reason: str | None = None
    detail: str = ""


@dataclass(frozen=True)
class Turn:
    """What one visible answer does."""

    calls: tuple[Call, ...]
    verdict: str
    """`valid`: at least one call, and all are valid. `invalid`: a call that is not. `none`: no call."""
    reason: str | None
    """A key of `REASONS`; None exactly when the turn is valid."""
    detail: str = ""


@dataclass(frozen=True)
class _Raw:
    """A call as it was written: arguments as an object, or parameters as texts."""

    name: str | None = None
    arguments: dict[str, Any] | None = None
    parameters: dict[str, str] | None = None
    reason: str | None = None
    detail: str = ""


def judge_turn(answer: str, state: AgentState) -> Turn:
    """What the visible `answer` calls at `state`. Never raises, and takes time linear in the answer's length."""
    if not answer.strip():
        return Turn((), "none", "no_answer")
    tools = {tool.name: tool for tool in state.tools}
    calls = tuple(_judge(raw, tools) for raw in _read(answer))
    if not calls:
        return Turn((), "none", "text_only")
    bad = next((call for call in calls if call.reason), None)
    if bad is not None:
        return Turn(calls, "invalid", bad.reason, bad.detail)
    if len(calls) > 1 and not state.parallel_tool_calls:
        return Turn(calls, "invalid", "several_calls", f"{len(calls)} calls")
    return Turn(calls, "valid", None)


def reads_back(answer: str, name: str, arguments: dict[str, str]) -> bool:
    """Whether a call of `name` with these `arguments` (texts) is found in `answer`."""
    return any(raw.name == name and arguments in (raw.arguments, raw.parameters) for raw in _read(answer) if not raw.reason)


def _read(answer: str) -> Iterator[_Raw]:
    """The calls in `answer`, up to and with the first that cannot be read."""
    if not _TAG.search(answer):
        yield from _bare(answer.strip())
        return
    place = 0
    while tag := _TAG.search(answer, place):
        if tag[0] == _OPEN:
            inside = _FUNCTION.match(answer, tag.end())
            raw, place = _function(answer, inside, wrapped=True) if inside else _hermes(answer, tag.end())
        else:
            head = _FUNCTION.match(answer, tag.start())
            raw, place = (
                _function(answer, head, wrapped=False) if head else (_malformed("<function=", answer, tag.end()), tag.end())
            )
        yield raw
        if raw.reason:
            return


def _hermes(answer: str, start: int) -> tuple[_Raw, int]:
    """The object after `<tool_call>` and where to read on. A closing tag inside of a text of it does not end it."""
    while start < len(answer) and answer[start].isspace():
        start += 1
    try:
        value, end = _DECODER.raw_decode(answer, start)
    except (ValueError, RecursionError) as error:
        close = answer.find(_CLOSE, start)
        if isinstance(error, RecursionError):
            return _Raw(reason="too_deep"), close if close >= 0 else len(answer)
        if close < 0:
            return _Raw(reason="unclosed", detail=_short(answer[start:])), len(answer)
        return _Raw(reason="malformed", detail=_short(f"not JSON: {error}")), close + len(_CLOSE)
    close = answer.find(_CLOSE, end)
    if close < 0:
        return _Raw(reason="unclosed", detail=_short(answer[start:])), len(answer)
    if answer[end:close].strip():
        return _malformed("after the object", answer, end), close + len(_CLOSE)
    return _object(value), close + len(_CLOSE)


def _object(value: Any) -> _Raw:
    """The call that a JSON value says."""
    if not isinstance(value, dict):
        return _Raw(reason="malformed", detail="not an object")
    name = value.get("name")
    if not isinstance(name, str):
        return _Raw(reason="malformed", detail="no name")
    arguments = value.get("arguments", value.get("parameters"))
    if not isinstance(arguments, dict):
        return _Raw(name, reason="malformed", detail="arguments are not an object")
    return _Raw(name, arguments)


def _function(answer: str, head: re.Match[str], wrapped: bool) -> tuple[_Raw, int]:
    name, place = head[1].strip(), head.end()
    parameters: dict[str, str] = {}
    while tag := _PARAMETER.match(answer, place):
        end = answer.find("</parameter>", tag.end())
        if end < 0:
            return _Raw(name, reason="unclosed", detail=_short(tag[0].strip())), len(answer)
        key = tag[1].strip()
        if key in parameters:
            return _Raw(name, reason="malformed", detail=_short(f"parameter {key} is there twice")), end
        parameters[key] = _one_line_off(answer[tag.end() : end])
        place = end + len("</parameter>")
    for closing in ("</function>", *([_CLOSE] if wrapped else [])):
        found = answer.find(closing, place)
        if found < 0:
            return _Raw(name, reason="unclosed", detail=f"no {closing}"), len(answer)
        if answer[place:found].strip():
            return _malformed(f"before {closing}", answer, place, name), found + len(closing)
        place = found + len(closing)
    return _Raw(name, parameters=parameters), place


def _one_line_off(value: str) -> str:
    """The template writes a value on lines of its own, so one line end at each side is not part of it."""
    return value.removeprefix("\n").removesuffix("\n")


def _bare(answer: str) -> Iterator[_Raw]:
    """Calls of an answer that is JSON as a whole."""
    found = _BARE.fullmatch(answer)
    marked, text = found[1], (found[2] if found[2] is not None else found[3]).strip()
    looks = marked or (text[:1] in ("{", "[") and '"name"' in text and re.search(r'"(?:arguments|parameters)"', text))
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        if looks:
            reason = "too_deep" if isinstance(error, RecursionError) else "malformed"
            yield _Raw(reason=reason, detail=_short(f"not JSON: {error}"))
        return
    items = value if isinstance(value, list) else [value]
    if marked or (items and all(_looks_like_a_call(one) for one in items)):
        yield from (_object(one) for one in items)


def _looks_like_a_call(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value and ("arguments" in value or "parameters" in value)


def _judge(raw: _Raw, tools: dict[str, Tool]) -> Call:
    name = None if raw.name is None else _short(raw.name)
    if raw.reason:
        return Call(name, None, raw.reason, raw.detail)
    tool = tools.get(raw.name or "")
    if tool is None:
        return Call(name, None, "unknown_tool", name or "")
    try:
        arguments = raw.arguments if raw.parameters is None else _typed(raw.parameters, tool)
        if _depth(arguments) > MAX_DEPTH:
            return Call(name, None, "too_deep")
        if found := fault(arguments) or _too_large(arguments):
            return Call(name, None, "malformed", f"arguments: {found}")
        errors = sorted(tool.validator.iter_errors(arguments), key=_rank)
    except RecursionError:
        return Call(name, None, "too_deep")
    if not errors:
        return Call(name, arguments)
    at = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in errors[0].absolute_path).lstrip(".")
    return Call(name, None, _reason(errors[0]), _short(f"{at}: {errors[0].message}" if at else errors[0].message))


def _typed(parameters: dict[str, str], tool: Tool) -> dict[str, Any]:
    """Texts as the values that the schema of each parameter allows: as text where it does, else as JSON or Python words."""
    properties = tool.parameters.get("properties", {})
    typed: dict[str, Any] = {}
    for name, text in parameters.items():
        typed[name] = text
        if name not in properties:
            continue
        errors = tool.validator.evolve(schema=properties[name]).iter_errors(text)
        if all(_reason(error) != "wrong_type" for error in errors):
            continue
        try:
            typed[name] = _PYTHON[text.strip()] if text.strip() in _PYTHON else _DECODER.decode(text)
        except ValueError:
            continue
    return typed


def _rank(error: Any) -> tuple[int, str]:
    return _ORDER.index(_reason(error)), str(list(error.absolute_path))


def _reason(error: Any) -> str:
    """The worst of alternatives that all failed is what most of them failed by: all by type, or by something else."""
    if error.validator in ("anyOf", "oneOf") and error.context:
        kinds = {_reason(one) for one in error.context}
        return kinds.pop() if len(kinds) == 1 else "wrong_value"
    return _BY_KEYWORD.get(error.validator, "wrong_value")


def _depth(value: Any) -> int:
    """Levels of lists and objects, without recursion; stops counting where it is too many."""
    level, depth = [value], 0
    while (level := [one for one in level if isinstance(one, list | dict)]) and depth <= MAX_DEPTH:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def _too_large(value: Any) -> str | None:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return next((found for one in inner if (found := _too_large(one))), None)
    large = isinstance(value, int) and abs(value) > LARGEST
    return "holds a whole number that no float can hold" if large else None


def _malformed(where: str, answer: str, place: int, name: str | None = None) -> _Raw:
    return _Raw(name, reason="malformed", detail=_short(f"{where}: {answer[place : place + _SHOWN].strip()}"))


def _short(text: str) -> str:
    """`text` as one line that can be written as UTF-8."""
    text = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _refuse(what: str, _: str) -> Any:
    raise ValueError(f"{what} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a field is there twice")
    return made


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=partial(_refuse, "a constant"))
