"""Processes that end with the one that started them, however that ends and even if they are stopped by then.

On Linux the kernel sees to it (`PR_SET_PDEATHSIG`). Its signal is sent when the *thread* that started a process ends, so they are
started by a thread that ends with this process only.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1


def signal_at_end_of(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have `number` sent to this process when `parent`, which started it by `in_lasting_thread`, ends. Replaces an earlier one.

    If it has ended already, this process does so, too. Does nothing on systems that cannot.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:  # before there was anything to send
        os.kill(os.getpid(), signal.SIGKILL)


def in_lasting_thread(start: Callable[[], T]) -> T:
    """What `start` returns or raises, called in a thread that lasts as long as this process."""
    asked: Future[T] = Future()
    with _lock:
        if not _threads:
            _threads.append(threading.Thread(target=_serve, name="starts processes", daemon=True))
            _threads[0].start()
    _waiting.put((asked, start))
    return asked.result()


_lock = threading.Lock()
_threads: list[threading.Thread] = []
_waiting: queue.SimpleQueue[tuple[Future, Callable[[], Any]]] = queue.SimpleQueue()


def _serve() -> None:
    while True:
        asked, start = _waiting.get()
        try:
            asked.set_result(start())
        except BaseException as error:
            asked.set_exception(error)
        del asked, start  # nothing of them is kept until the next


def _forget() -> None:
    """A fork has no threads but the one that made it."""
    global _lock, _waiting
    _lock, _waiting = threading.Lock(), queue.SimpleQueue()
    _threads.clear()


os.register_at_fork(after_in_child=_forget)
