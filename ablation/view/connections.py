"""Clients that take connections and ask for nothing: each has a few seconds for a request, and only so many are kept."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 5.0
"""From the first byte of a request, or from the connection, until the request is there whole."""
_WHOLE = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)


def most_connections() -> int:
    """Connections that are kept open: half of the files that this process may open, and not more than a page needs."""
    return max(8, min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


class Connection(H11Protocol):
    """One connection. A new one beyond the limit closes the oldest that waits for a request, or else the oldest of all."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.since = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()
        self._wait()
        kept = [one for one in self.connections if not one.transport.is_closing()]
        if len(kept) > most_connections():
            min(kept, key=lambda one: (one.timer is None, one.since)).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in _WHOLE:
            self._stop()
        elif self.timer is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self.timer = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class OnceAMinute(logging.Filter):
    """Lets one line a minute through, without a traceback: what clients do must not fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -60.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._last < 60:
            return False
        self._last, record.exc_info, record.exc_text = now, None, None
        record.msg, record.args = record.getMessage().partition("\n")[0], ()
        return True
