"""Proofs of a lock's time and author: what each one shows, and what it does not.

A lock guards a plan against everybody but somebody who writes plan and lock again together. A signature, a commit or tag,
and a timestamp are about the bytes of the lock file, so each of them ends that: the new lock has other bytes.
"""

from __future__ import annotations

import subprocess
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

PROVEN, NOT_PROVEN, FAILED, OWED = "proven", "not proven", "failed", "owed"


@dataclass(frozen=True)
class Proof:
    """One line of `plan verify`."""

    kind: str
    """`signature`, `git`, `tag` or `timestamp`."""
    state: str
    """PROVEN, NOT_PROVEN (with the reason), OWED, or FAILED: it contradicts the lock."""
    says: str
    """What was found: who, when; or why nothing is proven."""
    limits: str = ""
    """What it does not prove."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def in_words(self) -> str:
        limits = f" It does not prove {self.limits}." if self.limits else ""
        return f"{self.kind}: {self.state}: {self.says}.{limits}"


def parse_time(text: str) -> datetime:
    """ISO 8601 with offset or `Z`."""
    return datetime.fromisoformat(text)


def before_first_event(moment: datetime, began: str | None) -> tuple[bool, str]:
    """(whether `moment` is not later than the run's first event, words for it); True if nothing has run."""
    if began is None:
        return True, "there is no run to compare it with"
    first = parse_time(began)
    if moment <= first:
        return True, f"before the run's first event at {began}"
    return False, f"after the run's first event at {began}"


def run_tool(*command: str | Path, cwd: Path, stdin: bytes | None = None, timeout: float = 60) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of an outside program; exit code 127 if it is not installed, 124 if it did not end."""
    try:
        result = subprocess.run(list(map(str, command)), cwd=cwd, input=stdin, capture_output=True, timeout=timeout, check=False)
    except FileNotFoundError:
        return 127, "", f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, "", f"{command[0]} did not end within {timeout:g} s"
    except OSError as error:
        return 126, "", f"{command[0]} could not be started: {error.strerror}"
    return result.returncode, result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace")


def one_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "no reason was given"
