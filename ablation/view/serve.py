"""The server: one process, one address, gone with Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path

import uvicorn

from ablation.errors import UsageError
from ablation.view import cache
from ablation.view.app import create_app
from ablation.view.connections import Connection, OnceAMinute
from ablation.view.guard import is_loopback, new_token
from ablation.view.index import in_background
from ablation.view.library import Library


def serve(
    place: Path,
    host: str,
    port: int,
    *,
    names: tuple[str, ...] = (),
    token: bool = False,
    only_reads: bool = False,
    say: Callable[..., None] = print,
) -> None:
    """Serve `place` until the process is told to end. Raises `UsageError` if the address cannot be had."""
    listening = _listen(host, port)
    secret = new_token() if token or not is_loopback(host) else None
    app = create_app(
        Library(place), only_reads=only_reads, names=(host, *names), addresses=host in ("0.0.0.0", "::"), token=secret
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/" + (f"?token={secret}" if secret else "")
    say(f"{'Blinded reads' if only_reads else place} at {address}")
    say("Ctrl-C ends it.")
    in_background(lambda: cache.forget(time.time()))
    config = uvicorn.Config(
        app,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        http=Connection,
        backlog=64,  # as many are accepted before the first of them is looked at
        ws="none",  # where a package for them is installed it would answer before the guard does
        timeout_graceful_shutdown=1,
    )
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).addFilter(OnceAMinute())
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(128)  # before the address is printed: whoever reads it may come at once
    except OSError as error:
        made.close()
        hint = "Choose another one with --port, or 0 for any." if port else "Choose another one with --host."
        raise UsageError(f"{host}:{port}: cannot be listened on: {error.strerror or error}", hint=hint) from None
    return made
