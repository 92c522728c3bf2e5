"""Sandboxes for the checks that come with problems: one serves check after check, each in a process of its own."""

from __future__ import annotations

import marshal
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.process import Sandbox

_LIMITS = Limits(seconds=600, memory_mb=4096, output_kb=1 << 14)
MOST_BYTES = _LIMITS.output_kb << 10


class Judges:
    """A pool of them, for the threads of one call. Use it in a `with`, which must outlive those threads' work."""

    def __init__(self) -> None:
        self._idle: list[Sandbox] = []

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def check(self, source: str, entry_point: str, limits: Limits) -> Iterator[Sandbox]:
        """A sandbox that has begun to run this check. It is kept for the next one unless an error leaves the block.

        Raises:
            SandboxError: it could not be started.
        """
        try:
            judge = self._idle.pop()
        except IndexError:
            judge = Sandbox(b"J", {}, _LIMITS)
        try:
            judge.ready()
            setup = {
                "source": source,
                "entry_point": entry_point,
                "memory_mb": 2 * limits.memory_mb,
                "seconds": math.ceil(limits.seconds) + 2,  # of processor time; the parent's clock ends it before
            }
            judge.send(b"K", marshal.dumps(setup), time.monotonic() + limits.seconds)
            yield judge
        except BaseException:
            judge.close()
            raise
        self._idle.append(judge)
