"""Trackers beside a run: each in a process of its own, which can fail, hang or die without the run noticing."""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ablation
from ablation.errors import UsageError
from ablation.plan.lock import LockedPlan
from ablation.trackers.base import Target

START_PATIENCE = 30.0
"""Seconds that a run waits at its start for trackers to say that they are ready, or why not."""
END_PATIENCE = 20.0
"""Seconds that trackers have at the end of a run for what is left, all together."""
_KILL_PATIENCE = 5.0
"""Seconds that a killed process has to be gone."""


@contextmanager
def trackers_beside(targets: Sequence[Target], locked: LockedPlan, root: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Tell `targets` of the run in `root` until the block ends.

    Raises `UsageError` if one of them cannot be used at all, before the block begins.
    """
    if not targets:
        yield
        return
    children = [_Child(target, locked, root, say) for target in targets]
    try:
        deadline = time.monotonic() + START_PATIENCE
        for child in children:
            child.await_ready(deadline)
        yield
    except BaseException as error:
        if isinstance(error, UsageError):  # nothing was begun: there is nothing to tell
            for child in children:
                child.kill()
        raise
    finally:
        deadline = time.monotonic() + END_PATIENCE
        try:
            for child in children:
                child.end()
            for child in children:
                child.await_end(deadline)
        finally:
            for child in children:
                child.kill()


class _Child:
    """The process of one tracker."""

    def __init__(self, target: Target, locked: LockedPlan, root: Path, say: Callable[[str], None]) -> None:
        self._kind, self._say = target.kind, say
        to = target.kind if target.place is None else f"{target.kind}=..."  # a place may hold a password
        self._retry = f"`ablation track {shlex.quote(str(root))} --to {to}` sends what is missing"
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._ready, self._quiet, self._said_before = False, False, False
        threads = {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        python_path = os.pathsep.join(filter(None, (str(Path(ablation.__file__).parent.parent), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ablation.trackers.process"],  # -P: a folder `wandb` here is not the package
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | threads | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": python_path},
            start_new_session=True,  # Ctrl-C is for the run; this process ends when the run has
        )
        asked = {"kind": target.kind, "place": target.place, "root": str(root.absolute()), "study": locked.plan.name}
        asked |= {"digest": locked.digest, "patience": END_PATIENCE}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                message = json.loads(line)
                if self._ready and "trouble" in message:
                    self._say(f"tracker {self._kind}: {message['trouble']}; it is tried again, and the run goes on all the same")
                    continue
                self._messages.put(message)
        if self._ready and not self._quiet:
            self._say(f"tracker {self._kind}: its process has ended; the run goes on without it, and {self._retry}")
            self._quiet = True
        self._messages.put(None)

    def await_ready(self, deadline: float) -> None:
        try:
            message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self._ready = True
            self._say(f"tracker {self._kind}: not ready after {START_PATIENCE:.0f} s; the run does not wait for it")
            return
        if message is None or "ready" not in message:
            reason = (message or {}).get("failed", "its process ended")
            raise UsageError(
                f"--track {self._kind}: cannot be used: {reason}", hint="Nothing was started. Leave it out, or repair it."
            )
        self._ready = True
        self._say(f"tracker {self._kind}: {message['ready']}")

    def end(self) -> None:
        """Say that the run has ended."""
        assert self._process.stdin is not None
        self._said_before, self._quiet = self._quiet, True
        with suppress(OSError):
            self._process.stdin.close()

    def await_end(self, deadline: float) -> None:
        if not self._ready or self._said_before:
            return
        reason = f"not done after {END_PATIENCE:.0f} s"
        while True:
            try:
                message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if message is not None and "done" in message:
                return
            if message is None or "failed" in message:
                reason = (message or {}).get("failed", "its process ended early")
                break
        self._say(f"tracker {self._kind}: {reason}; {self._retry}")

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._ready = False
        with suppress(subprocess.TimeoutExpired):  # of a process that waits for a disk that is gone: it ends when it can
            self._process.wait(_KILL_PATIENCE)
