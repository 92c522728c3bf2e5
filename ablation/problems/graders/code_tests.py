"""The `tests` of a code problem, read with errors that name the field."""

from __future__ import annotations

import ast
import keyword
from dataclasses import dataclass, field
from typing import Any

from ablation.errors import UsageError
from ablation.problems.plain import is_number
from ablation.problems.sandbox.limits import Limits, read_limits
from ablation.problems.sandbox.values import NotPlain, decode

_FIELDS = {
    "function": ({"entry_point", "cases"}, {"prelude", "solution", "limits"}),
    "stdin": ({"cases"}, {"solution", "limits"}),
    "check": ({"entry_point", "check"}, {"prelude", "solution", "limits"}),
}


@dataclass(frozen=True)
class FunctionCase:
    """One call and its value, in the JSON form of `sandbox.values`."""

    args: list
    kwargs: dict[str, Any]
    expected: Any
    tolerance: float = 0.0


@dataclass(frozen=True)
class StdinCase:
    stdin: str
    stdout: str
    tolerance: float = 0.0


@dataclass(frozen=True)
class CodeTests:
    """`cases` for the kinds function and stdin, `check` for the kind check."""

    kind: str
    entry_point: str = ""
    cases: tuple[FunctionCase, ...] | tuple[StdinCase, ...] = ()
    check: str = ""
    prelude: str = ""
    """Code put before the answer's: imports and helpers that the prompt shows."""
    solution: str | None = None
    """A program known to be right, for `ablation problems check`."""
    limits: Limits = field(default_factory=Limits)


def read_tests(values: Any, where: str) -> CodeTests:
    """Read a problem's `tests`.

    Raises:
        UsageError: something is missing, unknown or of the wrong kind, or there is no case that an answer could fail.
    """
    if not isinstance(values, dict):
        raise UsageError(f"{where}: must be an object", hint=f"Its `kind` is one of {', '.join(_FIELDS)}.")
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise UsageError(f"{where}.kind: found {kind!r}", hint=f"It is one of {', '.join(_FIELDS)}.")
    needed, optional = _FIELDS[kind]
    for name in sorted(set(values) - needed - optional - {"kind"}):
        raise UsageError(
            f"{where}: unknown field `{name}`", hint=f"Tests of kind {kind} have {', '.join(sorted(needed | optional))}."
        )
    for name in sorted(needed - set(values)):
        raise UsageError(f"{where}.{name}: is missing", hint=f"Tests of kind {kind} have {', '.join(sorted(needed))}.")
    for name in {"entry_point", "check", "prelude", "solution"} & set(values):
        if not isinstance(values[name], str):
            raise UsageError(f"{where}.{name}: must be a text")
    entry_point = values.get("entry_point", "")
    if "entry_point" in needed and not is_name(entry_point):
        raise UsageError(f"{where}.entry_point: `{entry_point}` is not a name", hint="The name of the function that is called.")
    for name in ("check", "prelude"):
        _defined(values.get(name, ""), f"{where}.{name}")
    if kind == "check" and "check" not in _defined(values["check"], f"{where}.check"):
        raise UsageError(
            f"{where}.check: defines no function `check`", hint="check(candidate) raises an error for a wrong answer."
        )
    return CodeTests(
        kind=kind,
        entry_point=entry_point,
        cases=() if kind == "check" else _cases(kind, values["cases"], f"{where}.cases"),
        check=values.get("check", ""),
        prelude=values.get("prelude", ""),
        solution=values.get("solution"),
        limits=read_limits(values.get("limits"), f"{where}.limits"),
    )


def is_name(text: str) -> bool:
    """Whether `text` can name a function in Python."""
    return text.isidentifier() and not keyword.iskeyword(text)


def _defined(source: str, where: str) -> set[str]:
    """Names of the functions at the top of `source`, which is parsed and not run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{where}: is not Python: {error}") from error
    except (MemoryError, RecursionError):  # what the parser says of nesting that is too deep for it
        raise UsageError(f"{where}: is nested too deeply for Python's parser", hint="Write it flatter.") from None
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _cases(kind: str, cases: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(cases, list) or not cases:
        raise UsageError(f"{where}: there is no case", hint="A code problem needs at least one: nothing proves nothing.")
    read = _function_case if kind == "function" else _stdin_case
    found = tuple(read(case, f"{where}[{number}]") for number, case in enumerate(cases))
    if kind == "stdin" and not any(case.stdout.strip() for case in found):
        raise UsageError(
            f"{where}: no case expects any output", hint="An empty program would pass: give a case that prints something."
        )
    return found


def _fields(case: Any, where: str, needed: set[str], optional: set[str]) -> None:
    if not isinstance(case, dict):
        raise UsageError(f"{where}: must be an object", hint=f"A case has {', '.join(sorted(needed | optional))}.")
    for name in sorted(set(case) ^ needed):
        if name in needed or name not in optional:
            what = "is missing" if name in needed else "is unknown"
            raise UsageError(f"{where}.{name}: {what}", hint=f"A case has {', '.join(sorted(needed | optional))}.")


def _function_case(case: Any, where: str) -> FunctionCase:
    _fields(case, where, {"args", "expected"}, {"kwargs", "tolerance"})
    kwargs, tolerance = case.get("kwargs", {}), _tolerance(case, where)
    if not isinstance(case["args"], list):
        raise UsageError(f"{where}.args: must be a list", hint='For f(1, "a"): "args": [1, "a"].')
    if not isinstance(kwargs, dict) or not all(is_name(name) for name in kwargs):
        raise UsageError(f"{where}.kwargs: must be an object of names and values")
    for name, value in (("args", case["args"]), ("kwargs", list(kwargs.values())), ("expected", case["expected"])):
        try:
            decode(value)
        except (NotPlain, RecursionError) as error:
            raise UsageError(
                f"{where}.{name}: {error}", hint='Plain JSON, or one of the forms like {"$tuple": [1, 2]}.'
            ) from error
    return FunctionCase(case["args"], kwargs, case["expected"], tolerance)


def _stdin_case(case: Any, where: str) -> StdinCase:
    _fields(case, where, {"stdin", "stdout"}, {"tolerance"})
    for name in ("stdin", "stdout"):
        if not isinstance(case[name], str):
            raise UsageError(f"{where}.{name}: must be a text", hint='Put it in quotes: "3\\n", not 3.')
    return StdinCase(case["stdin"], case["stdout"], _tolerance(case, where))


def _tolerance(case: dict[str, Any], where: str) -> float:
    found = case.get("tolerance", 0.0)
    if not is_number(found) or found < 0:
        raise UsageError(f"{where}.tolerance: found {found!r}", hint="A number, 0 or more, for instance 1e-6.")
    return float(found)
