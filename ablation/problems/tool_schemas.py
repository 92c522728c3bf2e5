"""The functions that an agent state offers, and whether the arguments of a call fit their JSON Schema.

A schema is of the draft that its `$schema` names, 2020-12 if none. `format` is a remark, as the standard has it by default.
Nothing is ever fetched: a `$ref` names a place in the same schema. Since the values come from a model, no check may take long or
fail: patterns have a limit of time, unique items are compared by digest, and `patternProperties` is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from ablation.errors import UsageError
from ablation.problems.chat import kind, take

DRAFT = "https://json-schema.org/draft/2020-12/schema"
PATTERN_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PLAIN = {"enum", "const", "default", "examples"}  # values, not schemas
_NAMED = {"properties", "$defs", "definitions", "dependentSchemas"}  # name -> schema
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")  # about the same value
_FUNCTION: dict[str, type] = {"name": str, "description": str, "parameters": dict, "strict": bool}


@dataclass(frozen=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of its arguments, an object."""

    def for_template(self) -> dict[str, Any]:
        """The form that chat templates take."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @cached_property
    def validator(self) -> Any:
        """A `jsonschema` validator that fetches nothing."""
        from referencing import Registry

        return _validator_class(self.parameters.get("$schema", DRAFT))(self.parameters, registry=Registry())


def read_tools(values: Any, where: str) -> tuple[Tool, ...]:
    """The tools of `values`, each `{"type": "function", "function": {...}}` or the inner object alone.

    Raises `UsageError` that begins with `where`: no list, a name twice, a schema that is none or cannot be used.
    """
    if not isinstance(values, list) or not values:
        found = "an empty list" if values == [] else kind(values)
        raise UsageError(f"{where}: found {found}, not a list of functions", hint="An agent has at least one tool.")
    tools: dict[str, Tool] = {}
    for place, value in enumerate(values):
        at = f"{where}[{place}]"
        if isinstance(value, dict) and "function" in value:
            outer = take(value, at, {"type": str, "function": dict}, ("function",))
            if outer.get("type", "function") != "function":
                raise UsageError(f"{at}: type: found `{outer['type']}`", hint="Only functions can be called.")
            value, at = outer["function"], f"{at}: function"
        function = take(value, at, _FUNCTION, ("name",))
        name = function["name"]
        if not _NAME.fullmatch(name):
            raise UsageError(f"{at}: name: `{name}` is no function name", hint="Letters, digits and _ . -, at most 64.")
        if name in tools:
            raise UsageError(f"{at}: name: `{name}` is there twice", hint="Give every function its own name.")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        _check_schema(parameters, f"{at}: parameters")
        tools[name] = Tool(name, function.get("description", ""), parameters)
    return tuple(tools.values())


def _check_schema(schema: dict[str, Any], where: str) -> None:
    """Raise `UsageError` unless arguments can be held against `schema` without a failure."""
    import regex
    from jsonschema.exceptions import SchemaError

    found = schema.get("$schema", DRAFT)
    made = _validator_class(found)
    if made is None:
        raise UsageError(f"{where}: $schema: found `{found}`, no draft that is known here", hint=f"For instance {DRAFT}.")
    try:
        made.check_schema(schema)
    except SchemaError as error:
        at = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.absolute_path)
        said = " ".join(error.message.split())[:200]
        raise UsageError(f"{where}{at}: not a JSON Schema: {said}", hint="See json-schema.org.") from error
    except RecursionError as error:
        raise UsageError(f"{where}: nested too deeply", hint="Make it flatter.") from error
    if schema.get("type") != "object":
        raise UsageError(f"{where}: type: the arguments of a function are an object", hint='Add "type": "object".')
    for at, one in _schemas(schema, where):
        if "patternProperties" in one:
            raise UsageError(
                f"{at}: patternProperties is not supported: it would match names that a model wrote without a limit of time",
                hint="Name the properties, or use additionalProperties with propertyNames.",
            )
        if at != where and "$id" in one:
            raise UsageError(
                f"{at}: $id: is in the middle of a schema", hint="Leave it out, and write references as #/$defs/NAME."
            )
        if isinstance(one.get("pattern"), str):
            try:
                regex.compile(one["pattern"])
            except (regex.error, RecursionError) as error:
                raise UsageError(f"{at}: pattern: not a regular expression: {error}", hint="Write it as Python does.") from error
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(one.get(name), str):
                _referred(schema, one[name], f"{at}: {name}")
        _refuse_endless(schema, one, at, ())


def _schemas(schema: Any, at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """`schema` and every schema in it, with its place."""
    if not isinstance(schema, dict):
        return
    yield at, schema
    for name, value in schema.items():
        if name in _PLAIN:
            continue
        if name in _NAMED and isinstance(value, dict):
            for inner, one in value.items():
                yield from _schemas(one, f"{at}.{name}.{inner}")
        elif isinstance(value, dict):
            yield from _schemas(value, f"{at}.{name}")
        elif isinstance(value, list):
            for place, one in enumerate(value):
                yield from _schemas(one, f"{at}.{name}[{place}]")


def _referred(root: dict[str, Any], reference: str, where: str) -> Any:
    """The schema that `reference` names in `root`."""
    if not reference.startswith("#"):
        raise UsageError(f"{where}: `{reference}` is outside of this schema", hint="Nothing is fetched: copy it into $defs.")
    found: Any = root
    for part in filter(None, reference[1:].split("/")):
        part = part.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(part)] if isinstance(found, list) else found[part]
        except (LookupError, ValueError, TypeError):
            hint = "References are written as #/$defs/NAME."
            raise UsageError(f"{where}: `{reference}` names nothing in this schema", hint=hint) from None
    if not isinstance(found, dict | bool):
        raise UsageError(f"{where}: `{reference}` is {kind(found)}, no schema", hint="References are written as #/$defs/NAME.")
    return found


def _refuse_endless(root: dict[str, Any], schema: Any, at: str, path: tuple[int, ...]) -> None:
    """Raise `UsageError` if checking one value against `schema` comes back to `schema` with the same value."""
    if not isinstance(schema, dict):
        return
    if id(schema) in path:
        raise UsageError(f"{at}: the schema refers to itself without end", hint="A reference must lead into a property or item.")
    path = (*path, id(schema))
    for name in ("$ref", "$dynamicRef", "$recursiveRef"):
        if isinstance(schema.get(name), str):
            _refuse_endless(root, _referred(root, schema[name], f"{at}: {name}"), at, path)
    for name in _IN_PLACE:
        value = schema.get(name)
        inner = value if isinstance(value, list) else value.values() if name == "dependentSchemas" and value else [value]
        for one in inner:
            _refuse_endless(root, one, at, path)


@lru_cache(maxsize=8)
def _validator_class(draft: str) -> Any:
    """The class of a draft, with checks that are safe for values of a model; None if the draft is unknown."""
    from jsonschema import validators

    known = validators.validator_for({"$schema": draft}, default=None) if isinstance(draft, str) else None
    return known and validators.extend(known, {"pattern": _pattern, "uniqueItems": _unique_items})


def _pattern(validator: Any, pattern: str, instance: Any, schema: dict[str, Any]) -> Iterator[Any]:
    import regex
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, str):
        return
    try:
        if regex.search(pattern, instance, timeout=PATTERN_SECONDS) is None:
            yield ValidationError(f"{instance!r} does not match {pattern!r}")
    except TimeoutError:
        yield ValidationError(f"{instance!r} was not matched with {pattern!r} in {PATTERN_SECONDS} s")


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: dict[str, Any]) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(instance, list):
        keys = [json.dumps(_comparable(one), sort_keys=True) for one in instance]
        if len(set(keys)) < len(keys):
            yield ValidationError(f"{instance!r} has non-unique elements")


def _comparable(value: Any) -> Any:
    """Equal for what JSON Schema calls equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    if isinstance(value, dict):
        return {name: _comparable(one) for name, one in value.items()}
    return value
