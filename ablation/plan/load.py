"""From a plan file to a typed plan, or to every problem with it at once."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablation.errors import UsageError
from ablation.files import sha256_bytes
from ablation.plan.canonical import plan_digest
from ablation.plan.explain import explain, fault_at
from ablation.plan.model import Plan, name_problems
from ablation.plan.yaml_reader import MAX_BYTES, Document, Fault, read_yaml


@dataclass(frozen=True)
class LoadedPlan:
    """A valid plan and the bytes that it was read from."""

    plan: Plan
    path: Path
    data: bytes
    document: Document = field(repr=False)
    """Where every value stands in the file."""

    def refuse(self, problems: list[tuple[tuple[str | int, ...], str]]) -> None:
        """Raise a `PlanError` that names file, line and column of each (path, what to say), if there is any."""
        if problems:
            raise PlanError(self.path, sorted(fault_at(self.document, path, text) for path, text in problems))

    @cached_property
    def bytes_sha256(self) -> str:
        """Digest of the file as it is: guards the gate."""
        return sha256_bytes(self.data)

    @cached_property
    def digest(self) -> str:
        """Digest of the canonical form: the plan's identity."""
        return plan_digest(self.plan)


class PlanError(UsageError):
    """A plan that is not valid; `problems` has all that is wrong with it, in the order of the file."""

    def __init__(self, path: Path, problems: list[Fault], hint: str | None = None) -> None:
        self.path = path
        self.problems = problems
        super().__init__("\n".join(self._line(problem) for problem in problems), hint=hint)

    def _line(self, problem: Fault) -> str:
        where = field_path(problem.path)
        text = f"{where + ': ' if where else ''}{problem.text}".replace("\r", "\\r").replace("\n", "\\n")  # one line each
        return f"{self.path}:{problem.line}:{problem.column}: {text}"

    def lines(self) -> list[str]:
        return self.message.split("\n") + ([self.hint] if self.hint else [])


def load_plan(path: Path) -> LoadedPlan:
    """Read, check and type the plan at `path`. Raises `PlanError` with all problems, `UsageError` if it cannot be read."""
    path = Path(path)
    return parse_plan(path, read_plan_file(path))


def template(name: str) -> bytes:
    """The starting plan of `plan new`, full of placeholders."""
    return (Path(__file__).parent / "template.yaml").read_bytes().replace(b"@NAME@", name.encode())


def read_plan_file(path: Path) -> bytes:
    """The bytes of a plan file; a missing file is one clear `UsageError`."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe or a device could be read for ever
            raise UsageError(f"{path}: cannot be read: it is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
            rest = os.fstat(file.fileno()).st_size - len(data)
    except FileNotFoundError:
        folder = path.parent
        names = [file.name for file in sorted(folder.glob("*.yaml")) if file.exists()] if folder.is_dir() else []
        near = difflib.get_close_matches(path.name, names, n=1) or names[:5]
        hint = f"In {folder}/ there is: {', '.join(near)}." if near else "`ablation plan new NAME` writes a starting plan."
        raise UsageError(f"{path}: there is no such plan", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path}: cannot be read: {reason}") from error
    if len(data) > MAX_BYTES:
        fault = Fault(1, 1, (), f"the file has {len(data) + rest:,} bytes; a plan has at most {MAX_BYTES:,}")
        raise PlanError(path, [fault])
    return data


def parse_plan(path: Path, data: bytes) -> LoadedPlan:
    """`load_plan` for bytes that were read already; `path` is used for messages and for relative resources."""
    document = read_yaml(data)
    problems = list(document.faults)
    plan = None
    if isinstance(document.value, dict):
        try:
            plan = Plan.model_validate(document.value)
        except ValidationError as error:
            faults = explain(error, document, Plan) + _wrong_names(document)
            problems += [fault for fault in faults if not hidden(fault, document)]
    if problems:
        raise PlanError(path, sorted(set(problems)))
    assert plan is not None, "a document without faults is a mapping"
    return LoadedPlan(plan, path, data, document)


def _wrong_names(document: Document) -> list[Fault]:
    """Control and family of the replication that the plan does not have. Of a plan that is wrong elsewhere nothing else between
    sections is looked at, as it needs whole sections."""
    tree = document.value
    arms, families, found = tree.get("arms"), tree.get("families"), tree.get("verdict")
    found = found.get("replication") if isinstance(found, dict) else None
    control, family = (found.get(name) if isinstance(found, dict) else None for name in ("control", "family"))
    if not (arms and families and isinstance(arms, dict) and isinstance(families, dict)):
        return []
    if not (isinstance(control, str) and isinstance(family, str)):
        return []
    return [fault_at(document, *one) for one in name_problems(control, family, arms, families)]


def hidden(fault: Fault, document: Document) -> bool:
    """A problem at or below something that could not be read says nothing new."""
    return any(fault.path[:length] in document.unread for length in range(len(fault.path) + 1))


def field_path(path: tuple[Any, ...]) -> str:
    """`("verdict", "damage", 0, "limit")` -> `verdict.damage[0].limit`."""
    text = ""
    for part in path:
        if str(part).startswith("<"):  # a key that could not be read
            break
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
