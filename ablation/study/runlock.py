"""One runner at a time in a run folder, by a kernel lock: it is free again the moment its holder is gone."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ablation.errors import GateError
from ablation.files import disk_errors, lock_file, parse_json
from ablation.rollouts.folder import RunFolder

_TRIES, _WAIT = 3, 0.01
"""How often, and after how many seconds, a lock that is held is tried again."""


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold the lock of the run folder `root`, or raise GateError naming who does.

    The file's content only tells who holds it; whether it is held is the kernel's word, so a file that a killed
    runner left behind, or that names a process of somebody else, blocks nobody.
    """
    path = RunFolder(root).root / ".runner"
    with disk_errors(path):
        root.mkdir(parents=True, exist_ok=True)
        handle = open(path, "a+b")  # noqa: SIM115 - closed below
    with handle:
        try:
            _take(handle)
        except BlockingIOError:
            handle.seek(0)
            raise GateError(
                f"{root}: another runner is at work here: {_holder(handle.read())}",
                hint="Wait for it or stop it, then run the same command again; `ablation status` shows how far it is.",
            ) from None
        with disk_errors(path):
            handle.truncate(0)
            handle.write(json.dumps({"host": platform.node(), "pid": os.getpid()}).encode())
            handle.flush()
        yield


def _take(handle: BinaryIO) -> None:
    """Take the lock. Somebody who only looks whether it is held has it for a moment, so a first refusal is no word yet."""
    for _ in range(_TRIES):
        try:
            lock_file(handle, Path(handle.name), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_WAIT)
    lock_file(handle, Path(handle.name), fcntl.LOCK_EX | fcntl.LOCK_NB)


def runner_at_work(root: Path) -> str | None:
    """Who holds the lock of `root`, or None."""
    try:
        handle = open(root / ".runner", "rb")  # noqa: SIM115 - closed below
    except OSError:
        return None
    with handle:
        try:
            lock_file(handle, root, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(handle.read())
    return None


def _holder(content: bytes) -> str:
    try:
        holder = parse_json(content)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "a process that did not leave its name"
