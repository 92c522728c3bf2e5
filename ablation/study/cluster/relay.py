"""The journal and the reporter of a worker: what they are told goes to the driver, with the files that appeared in between."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ablation.files import TEMPORARY_PREFIX
from ablation.study.cluster.messages import Content, Delivery, Told

PROGRESS_EVERY = 0.5
"""Seconds between two words of one stage's progress."""
_NOT_SENT = ("inflight",)
"""Folders of what is not whole yet: if the worker is lost, it is sampled again."""

Send = Callable[[Any], None]
Signature = tuple[int, int, int]


class Relay:
    """The journal of a scratch run in `root`. An event is sent when the files that it tells of are there."""

    run = head = None  # the driver's ledger names the run and how far its journal is

    def __init__(self, root: Path, events: Iterable[dict[str, Any]], send: Send) -> None:
        """`events`: those that the driver's journal has and somebody may look for. What is in `root` now is the driver's own."""
        self.events = list(events)
        self._root, self._send = root, send
        self._pending: Delivery | None = None
        self._known = self._look()
        self._lock = threading.Lock()

    def append(self, event: str, **data: Any) -> None:
        """As `Journal.append`: the driver writes it down, with its own time."""
        with self._lock:
            self._deliver(*self._news())
            self.events.append({"event": event, **data})
            self._pending = Delivery(event, data)

    def settle(self) -> None:
        """Send the newest event if what it tells of has appeared."""
        with self._lock:
            files, removed = self._news()
            if files or removed:
                self._deliver(files, removed)

    def close(self) -> None:
        """Send all that was not sent."""
        with self._lock:
            self._deliver(*self._news())

    def _deliver(self, files: dict[str, Content], removed: tuple[str, ...]) -> None:
        if self._pending is None and not files and not removed:
            return
        event, data = (None, {}) if self._pending is None else (self._pending.event, self._pending.data)
        self._pending = None
        self._send(Delivery(event, data, files, removed))

    def _news(self) -> tuple[dict[str, Content], tuple[str, ...]]:
        """What was written and what was removed since the last look."""
        now = self._look()
        written = sorted(name for name, signature in now.items() if self._known.get(name) != signature)
        removed = tuple(sorted(self._known.keys() - now.keys()))
        self._known = now
        files = {}
        for name in written:
            if _is_unfinished(name):
                continue
            try:
                files[name] = Content.of((self._root / name).read_bytes())
            except FileNotFoundError:  # it went in between, and was never there
                del now[name]
        return files, removed

    def _look(self) -> dict[str, Signature]:
        """Every file that is at its final name, in folders that are."""
        found = {}
        for folder, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if not name.startswith(TEMPORARY_PREFIX)]
            for name in names:
                path = Path(folder, name)
                if name.startswith(TEMPORARY_PREFIX):
                    continue
                try:
                    state = path.stat()
                except FileNotFoundError:
                    continue
                found[path.relative_to(self._root).as_posix()] = (state.st_ino, state.st_mtime_ns, state.st_size)
        return found


def _is_unfinished(name: str) -> bool:
    return any(part in _NOT_SENT for part in name.split("/")[:-1])


class RelayReporter:
    """Sends what a terminal shows. `send` changes with each unit: a loaded model keeps its reporter."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self._spoke = 0.0

    def stage(self, title: str, rollouts: int, done: int, cap: int) -> None:
        self.send(Told("stage", (title, rollouts, done, cap)))

    def progress(self, done: int, tokens: int) -> None:
        now = time.monotonic()
        if now - self._spoke >= PROGRESS_EVERY:
            self._spoke = now
            self.send(Told("progress", (done, tokens)))

    def stage_done(self, seconds: float, tokens: int) -> None:
        self.send(Told("stage_done", (seconds, tokens)))

    def say(self, message: str) -> None:
        self.send(Told("say", (message,)))
