"""Work in a thread beside the one that must not wait for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

FAR_BEHIND = 1000
"""Pieces that may wait for the thread. Who adds one more waits, too: a disk that cannot follow must not fill the memory."""
AT_ONCE = 64


class Background(Generic[T]):
    """A context in which `work` is given what was put, in order, up to `AT_ONCE` pieces at a time.

    What `work` raises is raised by the next `put`, or at the end of the context, at which everything that was put is done.
    """

    def __init__(self, work: Callable[[list[T]], None]) -> None:
        self._work = work
        self._queue: queue.Queue[T | None] = queue.Queue(FAR_BEHIND)
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)

    def put(self, piece: T | None) -> None:
        while True:
            if self._failed is not None:
                raise self._failed
            try:
                return self._queue.put(piece, timeout=0.2)
            except queue.Full:
                continue

    def __enter__(self) -> Background[T]:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error in the context, too: what is finished is finished. That error goes first, then one of `work`."""
        if self._failed is None:
            try:
                self.put(None)
            except BaseException:
                if self._failed is None:
                    raise
        self._thread.join()
        if self._failed is not None and kind is None:
            raise self._failed

    def _run(self) -> None:
        ended = False
        while not ended:
            pieces: list[T] = []
            piece = self._queue.get()
            while piece is not None:
                pieces.append(piece)
                if len(pieces) == AT_ONCE:
                    break
                try:
                    piece = self._queue.get_nowait()
                except queue.Empty:
                    break
            ended = piece is None
            try:
                if pieces:
                    self._work(pieces)
            except BaseException as error:
                self._failed = error
                return
