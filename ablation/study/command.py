"""Running one command to its end: in a process group of its own, without a shell, its output in a log of bounded size.

Whatever happens (exit, timeout, Ctrl-C, kill -9 of the runner), nothing of the group is left running.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ablation.errors import UsageError
from ablation.files import disk_errors

LEASH = Path(__file__).with_name("leash.py")
HEAD_BYTES = 16 * 2**20
"""Of the output that a log keeps from its beginning."""
TAIL_BYTES = 2**20
"""Of a longer output that it keeps from its end."""
PATIENCE = 5.0
"""Seconds that the rest of the output is waited for when the group is gone; a process that left the group may hold the pipe."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    exit_code: int | None
    """As `subprocess` has it: negative for a signal. None if it did not end by itself, or never began."""
    why: str | None
    """Why there is no exit code."""
    seconds: float

    @property
    def words(self) -> str:
        """For instance `ended with exit code 3 after 12 s`."""
        if self.exit_code is None:
            return str(self.why)
        if self.exit_code < 0:
            try:
                name = signal.Signals(-self.exit_code).name
            except ValueError:
                name = f"signal {-self.exit_code}"
            return f"was killed by {name} after {self.seconds:.0f} s"
        return f"ended with exit code {self.exit_code} after {self.seconds:.0f} s"


def find_program(command: list[str], folder: Path, where: str) -> str:
    """The path of the program that `command` names when it is run in `folder`. Raises `UsageError` if there is none."""
    name = command[0]
    found = shutil.which(str(folder / name)) if "/" in name else shutil.which(name)
    if found is None:
        looked = f"at {folder / name}" if "/" in name else "on the PATH"
        raise UsageError(
            f"{where}: there is no program `{name}` {looked}",
            hint="Install it or activate its environment, then run the same command again. Nothing was trained.",
        )
    return found


def run_command(command: list[str], *, folder: Path, environment: Mapping[str, str], log: Path, seconds: float | None) -> Ended:
    """Run `command` in `folder` until it ends or `seconds` have passed; stdout and stderr go to `log`."""
    lifeline_read, lifeline = os.pipe()
    status, status_write = os.pipe()
    output, output_write = os.pipe()
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LEASH), str(lifeline_read), str(status_write), *command],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output_write,
            stderr=output_write,
            pass_fds=(lifeline_read, status_write),
            start_new_session=True,
        )
    except BaseException:
        for handle in (lifeline, status, output):
            os.close(handle)
        raise
    finally:
        for handle in (lifeline_read, status_write, output_write):
            os.close(handle)
    kept = _Log(log, output)
    try:
        ready, _, _ = select.select([status], [], [], seconds)
        told = os.read(status, 4096) if ready else None
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its leader was not waited for, so the number is still its own
        os.close(lifeline)
        process.wait()
        os.close(status)
        kept.close()
    took = time.monotonic() - started
    if told is None:
        return Ended(None, f"had not ended after {seconds:g} s, the plan's timeout, and was killed", took)
    found = json.loads(told) if told else {"error": "what held it was killed"}
    if "error" in found:
        return Ended(None, f"could not be run: {found['error']}", took)
    return Ended(found["exit_code"], None, took)


class _Log:
    """Copies a pipe into a file: the first bytes and the last ones, and how many were left out between them."""

    def __init__(self, path: Path, pipe: int) -> None:
        with disk_errors(path):
            self._file = path.open("wb")
        self._pipe, self._room, self._dropped = pipe, HEAD_BYTES, 0
        self._tail = bytearray()
        self._lock, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        while chunk := os.read(self._pipe, 65536):
            with self._lock:
                if self._closed:
                    break
                self._take(chunk)
        os.close(self._pipe)

    def _take(self, chunk: bytes) -> None:
        head, rest = chunk[: self._room], chunk[self._room :]
        self._room -= len(head)
        try:
            self._file.write(head)
            self._file.flush()
        except OSError:  # a full disk must not block the command; what it leaves behind will say so
            self._room, rest = 0, chunk
        self._tail += rest
        if len(self._tail) > 2 * TAIL_BYTES:
            self._cut()

    def _cut(self) -> None:
        gone = max(len(self._tail) - TAIL_BYTES, 0)
        self._dropped += gone
        del self._tail[:gone]

    def close(self) -> None:
        self._thread.join(PATIENCE)
        with self._lock:
            self._closed = True
            self._cut()
            if self._dropped:
                self._tail[:0] = f"\n[{self._dropped} bytes of output were left out here]\n".encode()
            try:
                self._file.write(self._tail)
                self._file.close()
            except OSError:
                pass
