"""Limits of one sandboxed answer."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ablation.errors import UsageError
from ablation.problems.plain import is_number


@dataclass(frozen=True)
class Limits:
    """What one answer may use. A problem can set its own under `tests.limits`."""

    seconds: float = 10.0
    """Wall time of all cases together, without the start of the sandbox; CPU time of each process."""
    memory_mb: int = 512
    """Address space of each process, and resident memory of all of them together, MiB."""
    processes: int = 32
    """Processes and threads at any time."""
    output_kb: int = 1024
    """Printed output of a stdin case, or one returned value as JSON, KiB."""
    files: int = 64
    """Open files of a process."""
    disk_mb: int = 16
    """The working folder, and any one file, MiB."""


_MOST = {"seconds": 600, "memory_mb": 65536, "processes": 1024, "output_kb": 65536, "files": 1024, "disk_mb": 4096}
_LEAST = {"seconds": 0.1, "memory_mb": 64, "processes": 4, "output_kb": 1, "files": 16, "disk_mb": 1}


def read_limits(values: Any, where: str) -> Limits:
    """Limits from a problem's `tests.limits`; what is left out has its default.

    Raises:
        UsageError: no such limit, or a value that is not a number in its range (named with `where`).
    """
    if values is None:
        return Limits()
    names = [field.name for field in fields(Limits)]
    if not isinstance(values, dict):
        raise UsageError(f"{where}: must be an object", hint=f"Known limits: {', '.join(names)}.")
    for name, value in values.items():
        if name not in names:
            raise UsageError(f"{where}: unknown limit `{name}`", hint=f"Known limits: {', '.join(names)}.")
        if not is_number(value) or not _LEAST[name] <= value <= _MOST[name] or (name != "seconds" and value != int(value)):
            kind = "a number" if name == "seconds" else "a whole number"
            raise UsageError(f"{where}.{name}: found {value!r}", hint=f"It is {kind} from {_LEAST[name]} to {_MOST[name]}.")
    return Limits(**{name: float(value) if name == "seconds" else int(value) for name, value in values.items()})
