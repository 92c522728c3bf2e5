"""Problems: a prompt with a checkable answer, read from JSON Lines with errors that name the line and field."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ablation.errors import UsageError

GRADERS = ("integer", "exact")
"""Graders by name; `problems.grade` has their rules."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,99}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_FIELDS = ("id", "source", "prompt", "grader", "gold")


@dataclass(frozen=True)
class Problem:
    """One problem. `gold` is text, so that no number format can change on the way."""

    id: str
    source: str
    prompt: str
    grader: str
    gold: str
    tags: tuple[str, ...] = ()


def load_problems(path: Path) -> dict[str, Problem]:
    """Problems by id, in file order, from a JSONL file with one object a line.

    Fields: id, source, prompt, grader, gold (text) and, if wanted, tags (a list of texts). Empty lines are skipped.

    Raises:
        UsageError: the first line that is not such an object, an id that came before, or a file without problems.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(
            f"{path}: could not be read: {error.strerror or error}", hint="Check the path of the problem file."
        ) from error
    problems: dict[str, Problem] = {}
    first_line: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        problem = _parse(line, f"{path}:{number}")
        if problem.id in problems:
            raise UsageError(
                f"{path}:{number}: id: `{problem.id}` was used before, in line {first_line[problem.id]}",
                hint="Give every problem its own id.",
            )
        problems[problem.id] = problem
        first_line[problem.id] = number
    if not problems:
        raise UsageError(f"{path}: there is no problem in this file", hint="One JSON object a line: " + ", ".join(_FIELDS) + ".")
    return problems


def problem_line(problem: Problem) -> str:
    """`problem` as the line that `load_problems` reads, without the line end; tags only if there are any."""
    values: dict[str, Any] = asdict(problem)
    if not problem.tags:
        del values["tags"]
    return json.dumps(values, ensure_ascii=False)


def _parse(line: bytes, where: str) -> Problem:
    try:
        values = json.loads(line.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8 (byte {error.start})", hint="Save the file as UTF-8.") from error
    except _DuplicateKey as error:
        raise UsageError(f"{where}: {error}: the field is there twice", hint="Keep one of the two.") from error
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}", hint="Each line is one JSON object.") from error
    except RecursionError as error:
        raise UsageError(f"{where}: nested too deeply", hint="Each line is one flat JSON object.") from error
    if not isinstance(values, dict):
        raise UsageError(f"{where}: found {_kind(values)}, not an object", hint="Each line is one JSON object.")
    unknown = sorted(set(values) - set(_FIELDS) - {"tags"})
    if unknown:
        raise UsageError(f"{where}: unknown field `{unknown[0]}`", hint=f"Known fields: {', '.join(_FIELDS)}, tags.")
    for name in _FIELDS:
        if name not in values:
            raise UsageError(f"{where}: {name}: is missing", hint=f"Every problem has {', '.join(_FIELDS)}.")
        if not isinstance(values[name], str):
            raise UsageError(f"{where}: {name}: found {_kind(values[name])}, not a text", hint='Put it in quotes: "42", not 42.')
        if _SURROGATE.search(values[name]):
            raise UsageError(f"{where}: {name}: holds half of a character (a lone surrogate)", hint="Write the text as UTF-8.")
    if not _ID.fullmatch(values["id"]):
        raise UsageError(
            f"{where}: id: `{values['id']}` is not an id", hint="Letters, digits and . _ / + -, at most 100, no spaces."
        )
    for name in ("source", "prompt"):
        if not values[name].strip():
            raise UsageError(f"{where}: {name}: is empty", hint=f"Every problem needs a {name}.")
    if values["grader"] not in GRADERS:
        raise UsageError(f"{where}: grader: unknown grader `{values['grader']}`", hint=f"Known graders: {', '.join(GRADERS)}.")
    tags = values.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise UsageError(f"{where}: tags: must be a list of texts", hint='For instance "tags": ["hard"].')
    return Problem(*(values[name] for name in _FIELDS), tags=tuple(tags))


class _DuplicateKey(ValueError):
    pass


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise _DuplicateKey(key)
        seen[key] = value
    return seen


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    return {int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}[type(value)]
