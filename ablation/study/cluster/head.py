"""Whether a cluster's head is still there: where it is gone, Ray ends this process after a minute, before anything is said."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ablation.errors import AblationError, ClusterLost

GONE_SECONDS = 40.0
"""A head that nobody reaches for so long is gone. Ray waits 60 s, and then ends whatever process asks for it."""
LOOK_SECONDS = 2.0


@contextmanager
def head_watched(address: str, lost: Callable[[AblationError], None]) -> Iterator[None]:
    """Until the block ends, look whether `address`, HOST:PORT, takes connections; if not, `lost` is told once, in a thread."""
    over = threading.Event()

    def watch() -> None:
        reached = time.monotonic()
        while not over.wait(LOOK_SECONDS):
            if _answers(address):
                reached = time.monotonic()
            elif time.monotonic() - reached > GONE_SECONDS and not over.is_set():
                return lost(_gone(address))

    threading.Thread(target=watch, name="head", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.removeprefix("[").removesuffix("]"), int(port)), timeout=LOOK_SECONDS).close()
    except OSError:
        return False
    return True


def _gone(address: str) -> ClusterLost:
    return ClusterLost(
        f"--on: the head of the Ray cluster, {address}, is gone: nothing has answered there for {GONE_SECONDS:g} s",
        hint="Nothing that was delivered is lost: with a cluster again the same command goes on, and so does one without --on.",
    )
