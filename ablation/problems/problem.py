"""Problems: a prompt with a checkable answer, read from JSON Lines or Parquet with errors that name the line and field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.problems.plain import HALF, fault, parse_line, shown

GRADERS = ("integer", "exact", "choice", "math", "reasoning_gym", "code")
"""Graders by name; `problems/graders/NAME.py` has the rules of each."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,99}")
_ALWAYS = ("id", "source", "prompt", "grader")
_FIELDS = (*_ALWAYS, "gold")
_OBJECTS = {"code": "tests", "reasoning_gym": "entry"}
"""Grader -> the field with the object that it grades by."""


@dataclass(frozen=True)
class Problem:
    """One problem. `gold` is text, so that no number format can change on the way."""

    id: str
    source: str
    prompt: str
    grader: str
    gold: str
    """The right answer; empty for `code`, which has `tests`."""
    tags: tuple[str, ...] = ()
    tests: dict[str, Any] | None = None
    """What `code` is judged by; `graders/code.py` has its form."""
    entry: dict[str, Any] | None = None
    """What `reasoning_gym` scores by; `graders/reasoning_gym.py` has its form."""


def load_problems(path: Path) -> dict[str, Problem]:
    """Problems by id, in file order: one JSON object a line, or one row a problem if the name ends with `.parquet`.

    Fields: id, source, prompt, grader, gold (text) and, if wanted, tags (a list of texts). `code` has `tests` (an object) in
    place of gold, `reasoning_gym` has `entry` (an object) besides; in Parquet an object is JSON text or a struct. Empty lines
    are skipped.

    Raises:
        UsageError: the first line that is not such an object, an id that came before, or a file without problems.
    """
    path = Path(path)
    rows = _parquet_rows(path) if path.suffix == ".parquet" or _has_magic(path) else _json_lines(path)
    problems = _by_id(rows, path)
    if not problems:
        raise UsageError(f"{path}: there is no problem in this file", hint="One JSON object a line: " + ", ".join(_FIELDS) + ".")
    return problems


def check_readable(problems: Sequence[Problem], what: str) -> None:
    """Raise `UsageError` for the first of `problems` that could not be read again from the file `what`."""
    _by_id(((number, json.loads(problem_line(problem))) for number, problem in enumerate(problems, start=1)), what)


def problem_line(problem: Problem) -> str:
    """`problem` as the line that `load_problems` reads, without the line end; tags, tests and entry only if there are any."""
    values: dict[str, Any] = {name: getattr(problem, name) for name in _ALWAYS}
    if problem.grader != "code":
        values["gold"] = problem.gold
    values |= {name: getattr(problem, name) for name in ("tags", "tests", "entry") if getattr(problem, name)}
    return json.dumps(values, ensure_ascii=False)


def _by_id(rows: Iterable[tuple[int, Any]], path: Path | str) -> dict[str, Problem]:
    problems: dict[str, Problem] = {}
    first: dict[str, int] = {}
    for number, values in rows:
        where = f"{path}:{number}"
        problem = _problem(values, where)
        if problem.id in problems:
            raise UsageError(
                f"{where}: id: `{problem.id}` was used before, in line {first[problem.id]}",
                hint="Give every problem its own id.",
            )
        problems[problem.id] = problem
        first[problem.id] = number
    return problems


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, value) of every line that is not empty."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(
            f"{path}: could not be read: {error.strerror or error}", hint="Check the path of the problem file."
        ) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, parse_line(line, f"{path}:{number}")


def _has_magic(path: Path) -> bool:
    """Whether the file begins as Parquet does: a run keeps its copy of a problem file under a name of its own."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False  # whoever reads it says why


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(row from 1, values); a column without a value in this row is left out, and an object may be JSON text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            # a thread that outlives the program would abort it
            rows = pq.ParquetFile(file, pre_buffer=False).read(use_threads=False).to_pylist()
    except OSError as error:
        raise UsageError(
            f"{path}: could not be read: {error.strerror or error}", hint="Check the path of the problem file."
        ) from error
    except (pa.ArrowException, ValueError, OverflowError) as error:  # the last two: texts and dates that no Python value can be
        raise UsageError(f"{path}: not a Parquet file: {error}", hint="Write it again, or use JSON Lines.") from error
    for number, row in enumerate(rows, start=1):
        values = {name: value for name, value in row.items() if value is not None}
        for name in _OBJECTS.values():
            if isinstance(values.get(name), str):
                values[name] = parse_line(values[name].encode(), f"{path}:{number}: {name}")
        yield number, values


def _problem(values: Any, where: str) -> Problem:
    """The problem that a line's or row's values say."""
    if not isinstance(values, dict):
        raise UsageError(f"{where}: found {_kind(values)}, not an object", hint="Each line is one JSON object.")
    known = [*_FIELDS, "tags", *_OBJECTS.values()]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise UsageError(
            f"{where}: unknown field `{shown(unknown[0])}`",
            hint=f"Known fields: {', '.join([*_FIELDS, 'tags', 'tests', 'entry'])}.",
        )
    for name, value in values.items():
        if found := fault(value):
            hint = "Write the text as UTF-8." if found == HALF else "Plain JSON values; for others see plans/README.md."
            raise UsageError(f"{where}: {name}: {found}", hint=hint)
    grader = values.get("grader")
    texts = _ALWAYS if grader == "code" else _FIELDS
    for name in texts:
        if name not in values:
            raise UsageError(f"{where}: {name}: is missing", hint=f"Every problem has {', '.join(texts)}.")
        if not isinstance(values[name], str):
            raise UsageError(f"{where}: {name}: found {_kind(values[name])}, not a text", hint='Put it in quotes: "42", not 42.')
    if not _ID.fullmatch(values["id"]):
        raise UsageError(
            f"{where}: id: `{shown(values['id'])}` is not an id", hint="Letters, digits and . _ / + -, at most 100, no spaces."
        )
    for name in ("source", "prompt"):
        if not values[name].strip():
            raise UsageError(f"{where}: {name}: is empty", hint=f"Every problem needs a {name}.")
    if grader not in GRADERS:
        raise UsageError(f"{where}: grader: unknown grader `{shown(grader)}`", hint=f"Known graders: {', '.join(GRADERS)}.")
    tags = values.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise UsageError(f"{where}: tags: must be a list of texts", hint='For instance "tags": ["hard"].')
    if grader == "code" and "gold" in values:
        raise UsageError(
            f"{where}: gold: grader `code` has tests, no gold", hint="A canonical solution goes into tests.solution."
        )
    for owner, name in _OBJECTS.items():
        if grader == owner and not isinstance(values.get(name), dict):
            found = _kind(values[name]) if name in values else "nothing"
            raise UsageError(f"{where}: {name}: found {found}, not an object", hint=f"Grader `{owner}` grades by `{name}`.")
        if grader != owner and name in values:
            raise UsageError(f"{where}: {name}: only for grader `{owner}`, found grader `{grader}`", hint="Leave it out.")
    objects = {name: values.get(name) for name in _OBJECTS.values()}
    if grader == "code":
        from ablation.problems.graders.code_tests import read_tests

        read_tests(values["tests"], f"{where}: tests")
    if grader == "reasoning_gym":
        from ablation.problems.graders.reasoning_gym import read_entry

        read_entry(values["entry"], f"{where}: entry")
    return Problem(*(values[name] for name in _ALWAYS), values.get("gold", ""), tuple(tags), **objects)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    known = {int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return known.get(type(value), f"a value of type {type(value).__name__}")
