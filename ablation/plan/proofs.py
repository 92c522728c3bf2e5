"""Proofs of a lock's time and author: what each one shows, and what it does not.

A lock guards a plan against everybody but somebody who writes plan and lock again together. A signature, a commit or tag,
and a timestamp are about the bytes of the lock file, so each of them ends that: the new lock has other bytes.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

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


def run_tool(
    *command: str | Path,
    cwd: Path,
    stdin: bytes | IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of an outside program; exit code 127 if it is not installed, 124 if it did not end.

    It and all that it started are ended after `timeout` seconds.
    """
    given = stdin if isinstance(stdin, bytes) else None
    source = subprocess.PIPE if given is not None else stdin or subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=cwd,
            env=env,
            stdin=source,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return 127, "", f"{command[0]} is not installed"
    except OSError as error:
        return 126, "", f"{command[0]} could not be started: {error.strerror}"
    with process:
        try:
            out, error = process.communicate(given, timeout)
        except BaseException as stopped:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise
            return 124, "", f"{command[0]} did not end within {timeout:g} s"
    return process.returncode, (out or b"").decode(errors="replace"), error.decode(errors="replace")


def one_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "no reason was given"
