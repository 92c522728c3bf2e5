"""pydantic's errors as lines that a plan's author can act on: place, what was found, what is allowed, a suggestion."""

from __future__ import annotations

import re
import types
import typing
import unicodedata
from typing import Any

from pydantic import BaseModel, ValidationError

from ablation.plan.section import Refusal, did_you_mean
from ablation.plan.yaml_reader import Document, Fault, Path

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "list_type": "a list",
    "too_short": "a list that is not empty",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_PATTERNS = {
    "^[0-9a-f]{64}$": "a SHA-256 of 64 lower-case hex digits",
    "^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$": "a name of at most 40 letters, digits, `-` and `_`",
}


def explain(error: ValidationError, document: Document, model: type[BaseModel]) -> list[Fault]:
    """One fault for every place that `error` names; the members of a union are joined into one."""
    faults: list[Fault] = []
    meant: set[Path] = set()  # fields that are missing because their name is misspelt: one fault, one message
    missing: list[Fault] = []
    wanted: dict[Path, list[tuple[str, list[str]]]] = {}
    for entry in error.errors(include_url=False):
        path = _place(document, tuple(part for part in entry["loc"] if part != "[key]"))
        kind, context = entry["type"], entry.get("ctx", {})
        if kind == "extra_forbidden":
            known = list(fields_at(model, path[:-1]))
            suggestion = did_you_mean(path[-1], known)
            meant.update((*path[:-1], name) for name in known if suggestion == f"; did you mean `{name}`?")
            suggestion = suggestion or f"; known here: {', '.join(known)}"
            faults.append(fault_at(document, path, f"unknown field{suggestion}", key=True))
        elif kind == "missing":
            missing.append(fault_at(document, path, f"is missing; it needs {_meaning(model, path)}"))
        elif kind == "value_error" and isinstance(context.get("error"), Refusal):
            faults += [fault_at(document, (*path, *below), text) for below, text in context["error"].problems]
        elif kind in ("value_error", "assertion_error"):
            faults.append(fault_at(document, path, entry["msg"].split(", ", 1)[-1]))
        elif entry["loc"][-1:] == ("[key]",):
            faults.append(
                fault_at(document, path, f"found the name `{path[-1]}`; allowed: {_allowed(kind, context)[0]}", key=True)
            )
        else:
            place = path
            while place and place not in document.values:  # the label of a union's member
                place = place[:-1]
            wanted.setdefault(place, []).append(_allowed(kind, context, entry["msg"]))
    for path, options in wanted.items():
        if isinstance(_value(document, path), list) and any(one.path[: len(path)] == path for one in faults + missing):
            continue  # a list was meant, and what is wrong is in it
        faults.append(fault_at(document, path, _mismatch(_value(document, path), options, path in document.quoted)))
    return faults + [fault for fault in missing if fault.path not in meant]


def _place(document: Document, path: Path) -> Path:
    """`path` without the labels that pydantic puts in for the member of a union, as in (`table`, `list[Row]`, 0, `label`)."""
    place: list[str | int] = []
    for part in path:
        inside = document.values.get(tuple(place)) is not None and _value(document, tuple(place))
        if not (isinstance(inside, list) and isinstance(part, str)):
            place.append(part)
    return tuple(place)


def fault_at(document: Document, path: Path, text: str, key: bool = False) -> Fault:
    """A fault at `path`, placed at the nearest thing of it that is in the file."""
    if key and path in document.keys:
        return Fault(*document.keys[path], path, text)
    nearest = path
    while nearest and nearest not in document.values:
        nearest = nearest[:-1]
    marks = document.keys if nearest != path and nearest in document.keys else document.values
    return Fault(*marks.get(nearest, (1, 1)), path, text)


def _value(document: Document, path: Path) -> Any:
    value = document.value
    for part in path:
        value = value[part]
    return value


def _allowed(kind: str, context: dict, message: str = "") -> tuple[str, list[str]]:
    """What would be right, in words and, for a closed list, its words."""
    if kind == "literal_error":
        expected = context["expected"]
        return expected.replace("'", "`"), re.findall(r"'([^']*)'", expected)
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        name, limit = next(iter(context.items()))
        return f"a number {({'gt': '>', 'ge': '>=', 'lt': '<', 'le': '<='})[name]} {limit:g}", []
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"text like {context['pattern']}"), []
    if kind == "string_too_long":
        return f"text of at most {context['max_length']} characters", []
    return _WANTED.get(kind, message), []


def _mismatch(value: Any, options: list[tuple[str, list[str]]], quoted: bool) -> str:
    phrases = list(dict.fromkeys(phrase for phrase, _ in options))
    if "a number" in phrases and "a whole number" in phrases:
        phrases.remove("a whole number")
    words = [word for _, words in options for word in words]
    text = f"found {found(value)}; allowed: {' or '.join(phrases)}"
    wants_number = any("number" in phrase for phrase in phrases)
    if isinstance(value, str) and wants_number and _is_number(value):
        meant = "".join(str(unicodedata.decimal(one, one)) for one in unicodedata.normalize("NFKC", value)).replace("_", "")
        return text + (f"; did you mean `{meant}`?" if meant != value else "; remove the quotes" if quoted else "")
    if isinstance(value, (int, float)) and any(phrase.startswith("text") for phrase in phrases):
        return text + "; put quotes around it"
    return text + did_you_mean(value, words)


def found(value: Any) -> str:
    """A short description of a value in a plan."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f'the text "{value if len(value) <= 60 else value[:57] + "..."}"'
    return "a list" if isinstance(value, list) else "a mapping"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _meaning(model: type[BaseModel], path: Path) -> str:
    info = fields_at(model, path[:-1]).get(path[-1])
    description = (info.description or "") if info is not None else ""
    first = description.strip().split("\n")[0].rstrip(".")
    return f"`{path[-1]}: ...`" + (f" ({first})" if first else "")


def fields_at(model: type[BaseModel], path: Path) -> dict:
    """The fields (pydantic `FieldInfo`) that may stand at `path` below `model`; empty if that is not a section."""
    options: list[Any] = [model]
    for part in path:
        options = [inner for option in options for inner in _step(option, part)]
    fields: dict = {}
    for option in options:
        fields |= option.model_fields if isinstance(option, type) and issubclass(option, BaseModel) else {}
    return fields


def _step(annotation: Any, part: str | int) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        info = annotation.model_fields.get(str(part))
        return _members(info.annotation) if info is not None else []
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) in (dict, list) and arguments:
        return _members(arguments[-1])
    return []


def _members(annotation: Any) -> list[Any]:
    """The members of a union, `Annotated` taken off."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [member for argument in typing.get_args(annotation) for member in _members(argument)]
    return [annotation]
