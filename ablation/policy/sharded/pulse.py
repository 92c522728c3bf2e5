"""Signs of life between processes that torchrun started: whoever is stopped, frozen or gone is noticed by one that lives.

A limit on collectives would not do: a short one ends a run because one machine reads the model from a slower disk. So a thread of
each process counts in torchrun's store, whatever the process is doing, and looks at the count of the next one; of any that stop,
one has a process before it that goes on. A process that was stopped itself waits for the others anew.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from typing import Any

SILENT_SECONDS = 120.0
"""No sign of life for so long: more than a busy network or a machine that swaps takes."""
PULSES = 24
"""In that time."""
_WHO, _BEAT, _ENDED, _WHY = "who/{}", "beat/{}", "ended", "why"


class Pulses:
    """This process's signs of life, and the watch over the next process."""

    def __init__(self, store: Any, rank: int, count: int, lost: Callable[[str], None], seconds: float | None = None) -> None:
        """`store`: of `torch.distributed`, for this alone. `lost` is told why they end, in a thread; it has to end the process.

        `seconds`: None for `SILENT_SECONDS`.
        """
        self.seconds = SILENT_SECONDS if seconds is None else seconds
        self._store, self._rank, self._count, self._lost = store, rank, count, lost
        self._pause = self.seconds / PULSES
        self._over = threading.Event()
        self._answered = time.monotonic()
        store.set(_WHO.format(rank), f"{platform.node()}:{os.getpid()}")
        for work in (self._beat, self._watch_store):
            threading.Thread(target=work, name="pulse", daemon=True).start()

    def over(self) -> None:
        """They end, one sooner than another: from now on nobody is missed here."""
        self._over.set()

    def _beat(self) -> None:
        following = (self._rank + 1) % self._count
        beats, heard, looked = -1, self._answered, self._answered
        try:
            while not self._over.is_set():
                self._store.add(_BEAT.format(self._rank), 1)
                if self._store.add(_ENDED, 0):
                    return self._end(self._store.get(_WHY).decode())
                found = self._store.add(_BEAT.format(following), 0)
                self._answered = now = time.monotonic()
                slept, looked = now - looked > self.seconds / 2, now
                if found != beats or slept:
                    beats, heard = found, now
                elif now - heard > self.seconds:
                    why = f"process {following} of {self._count} ({self._who(following)}) gave no sign of life for "
                    self._store.set(_WHY, f"{why}{now - heard:.0f} s (it is stopped or frozen, or its machine is gone)")
                    self._store.add(_ENDED, 1)
                    time.sleep(2 * self._pause)  # for the others to read it
                time.sleep(self._pause)
        except Exception as error:  # a connection that is closed
            self._end(f"torchrun's store is gone ({str(error).splitlines()[0][:200] if str(error) else type(error).__name__})")

    def _watch_store(self) -> None:
        """Without an answer the thread above waits: torchrun, or its machine, is stopped or gone."""
        looked = time.monotonic()
        while not self._over.wait(self._pause):
            now = time.monotonic()
            slept, looked = now - looked > self.seconds / 2, now
            if slept:
                self._answered = now
            elif now - self._answered > self.seconds:
                return self._end(f"torchrun's store gave no answer for {now - self._answered:.0f} s (it is stopped or gone)")

    def _who(self, rank: int) -> str:
        return self._store.get(_WHO.format(rank)).decode() if self._store.check([_WHO.format(rank)]) else "not there yet"

    def _end(self, why: str) -> None:
        if not self._over.is_set():
            self._lost(why)
