"""Threads that take turns: one works, and who waits lets another. What they share needs no other lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

ABANDONED = 5.0
"""Seconds in which a task ends once the run does for a reason that it may never hear of, such as a cluster that is gone."""


class Ended(Exception):
    """The run ends: whoever waited goes no further."""


class Turns:
    """The turn, which one thread has at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self.ended = False
        self._why: BaseException | None = None

    @property
    def mine(self) -> bool:
        return self._owner == threading.get_ident()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """This thread has the turn in the block; it may have it already. Raises `Ended` once the run ends."""
        if self.mine:
            yield
            return
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Others may have the turn in the block. Raises `Ended` after it if the run ends."""
        if not self.mine:
            yield
            return
        self._give()
        try:
            yield
        finally:
            self._lock.acquire()
            self._owner = threading.get_ident()
        self._go_on()

    def end(self, why: BaseException | None = None) -> None:
        """Nobody goes further than to the next time that it asks for the turn.

        With `why` that is raised, whatever comes of the tasks, for good; and one that waits in vain is left where it is.
        """
        self._why = self._why or why
        self.ended = True

    def together(self, tasks: Sequence[Callable[[], T]], cancel: Callable[[], None]) -> list[T]:
        """What `tasks` return, each done in a thread of its own that has the turn while it does not wait.

        After the first error, or one in this thread (Ctrl-C), all of them end: `cancel` ends what they wait for.
        """

        def begun(task: Callable[[], T], future: Future[T]) -> None:
            try:
                with self.taken():
                    found = task()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(found)

        outermost = not self.mine
        futures: list[Future[T]] = [Future() for _ in tasks]
        try:
            with self.aside():
                for pair in zip(tasks, futures, strict=True):  # daemons: the program's end waits for none that is left
                    threading.Thread(target=begun, args=pair, name="arm", daemon=True).start()
                return self._results(futures, cancel)
        finally:
            if outermost and self._why is None:  # all threads have ended, and the next ones may begin
                self.ended = False

    def _results(self, futures: Sequence[Future[T]], cancel: Callable[[], None]) -> list[T]:
        try:
            while wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION).not_done and not _failed(futures):
                self._go_on()
        except Ended:  # by an error in another thread: what a task of these waits for, or what waits for these
            self._stop(futures, cancel)
            raise self._why or _failed(futures) or Ended from None
        except BaseException:
            self._stop(futures, cancel)
            raise
        if _failed(futures) is not None:
            self._stop(futures, cancel)  # the first that is done may have ended for another's error
            failed = self._why or _failed(futures)
            assert failed is not None
            raise failed
        return [future.result() for future in futures]

    def _stop(self, futures: Sequence[Future], cancel: Callable[[], None]) -> None:
        """Until all have ended. Where there is a reason for it neither they nor `cancel` may hold it up."""
        self.end()
        if self._why is None:
            cancel()
        else:
            threading.Thread(target=cancel, daemon=True).start()
        until = None
        while wait(futures, timeout=0.2).not_done:
            if self._why is not None:
                until = until or time.monotonic() + ABANDONED
                if time.monotonic() > until:
                    return

    def _take(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        try:
            self._go_on()
        except BaseException:
            self._give()
            raise

    def _give(self) -> None:
        self._owner = None
        self._lock.release()

    def _go_on(self) -> None:
        if self.ended:
            raise Ended


def _failed(futures: Sequence[Future]) -> BaseException | None:
    """The first error, one that says more than `Ended` if there is one."""
    errors = [error for one in futures if one.done() and (error := one.exception()) is not None]
    return next((error for error in errors if not isinstance(error, Ended)), errors[0] if errors else None)
