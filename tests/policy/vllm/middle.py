"""What stands between a client and a server in these tests: it forwards, counts, and cuts, delays or alters as it is told."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

GENERATE = "/inference/v1/generate"


@dataclass
class Answer:
    """What a server says: all at once, or piece by piece."""

    status: int
    pieces: Iterator[bytes] | list[bytes]
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


class Cut(Exception):
    """Raised by a rule: the connection ends here."""


class Middle:
    """`upstream`: the address of a server, or what answers in its place. `ask` and `alter` are the rules in force."""

    def __init__(self, upstream: str | Any) -> None:
        self.upstream = upstream
        self.ask: Callable[[str, dict[str, Any] | None], Answer | None] = lambda path, body: None
        """Sees (and may change) each request; what it returns is the answer, and the server is not asked."""
        self.alter: Callable[[str, Answer], Answer] = lambda path, answer: answer
        self.seen: list[tuple[str, dict[str, Any] | None]] = []
        self.headers: list[dict[str, str]] = []
        self.at_once = self.most_at_once = self.connections = 0
        self._lock = threading.Lock()
        middle = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                middle.serve(self)

            do_POST = do_GET

            def setup(self):
                middle.connections += 1
                super().setup()

            def log_message(self, *arguments):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request, client_address):
                pass  # a client that left

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """No rules, and nothing seen."""
        self.ask, self.alter = (lambda path, body: None), (lambda path, answer: answer)
        self.seen, self.headers, self.most_at_once, self.connections = [], [], 0, 0

    @property
    def generated(self) -> list[dict[str, Any]]:
        return [body for path, body in self.seen if path == GENERATE]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        data = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        body = json.loads(data) if data else None
        path = handler.path
        with self._lock:
            self.seen.append((path, json.loads(data) if data else None))
            self.headers.append(dict(handler.headers))
            if path == GENERATE:
                handler.counted = True
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            answer = self.ask(path, body)
            if answer is not None:
                self._send(handler, answer)
                return
            with self._upstream(handler.command, path, body) as answer:
                self._send(handler, self.alter(path, answer))
        except (Cut, OSError):
            handler.close_connection = True
            with suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)
        finally:
            self._over(handler)

    def _over(self, handler: BaseHTTPRequestHandler) -> None:
        """What `handler` was asked for is no longer under way."""
        with self._lock:
            self.at_once -= getattr(handler, "counted", False)
            handler.counted = False

    @contextmanager
    def _upstream(self, method: str, path: str, body: dict[str, Any] | None) -> Iterator[Answer]:
        if not isinstance(self.upstream, str):
            yield self.upstream.answer(method, path, body)
            return
        connection = http.client.HTTPConnection(urlsplit(self.upstream).netloc, timeout=600)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            kind = response.headers.get("content-type") or ""
            pieces = _events(response) if "event-stream" in kind else [response.read()]
            yield Answer(response.status, pieces, kind)
        finally:
            connection.close()

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        handler.send_response(answer.status)
        handler.send_header("Content-Type", answer.kind)
        handler.send_header("Transfer-Encoding", "chunked")
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        for piece in answer.pieces:
            if b"[DONE]" in piece:
                self._over(handler)  # the client may ask for the next one before this is sent to its end
            if piece:
                handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                handler.wfile.flush()
        handler.wfile.write(b"0\r\n\r\n")

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    event = b""
    while line := response.readline():
        event += line
        if line == b"\n":
            yield event
            event = b""


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def parsed(piece: bytes) -> Any:
    """The value of an event; None for the last one."""
    data = piece.removeprefix(b"data: ").strip()
    return None if data == b"[DONE]" else json.loads(data)


def events_changed(change: Callable[[dict[str, Any]], None]) -> Callable[[str, Answer], Answer]:
    """A rule for `alter`: each event of a rollout goes through `change`."""

    def each(pieces):
        for piece in pieces:
            value = parsed(piece)
            if value is not None:
                change(value)
            yield piece if value is None else event(value)

    def alter(path, answer):
        if path == GENERATE:
            answer.pieces = each(answer.pieces)
        return answer

    return alter


def whole(value: Any, status: int = 200, **headers: str) -> Answer:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Answer(status, [data], headers=headers)
