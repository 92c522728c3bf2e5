"""A local HTTP server that speaks OpenAI's chat completions: a script says what the model replies, the wire is real."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Script = Callable[[dict[str, Any]], Any]
"""Request -> the reply's text, or a dictionary of `content`, `finish_reason`, `refusal`, `reasoning_content`, or an HTTP status, or
(content type, body), or a number of seconds over which an answer drips without an end."""


class Server(ThreadingHTTPServer):
    """Keeps what it was asked, with the headers."""

    daemon_threads = False  # all of them have ended when the server is closed

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.asked, self.keys = script, [], []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(request)
        self.server.keys.append(self.headers["Authorization"])
        found = self.server.script(request)
        if isinstance(found, float):
            return self._drip(found)
        if isinstance(found, tuple):
            return self._send(200, found[1], found[0])
        if isinstance(found, int):
            return self._send(found, {"error": {"message": f"no: {self.headers['Authorization']}", "type": "made_up"}})
        values = found if isinstance(found, dict) else {"content": found}
        ended = values.pop("finish_reason", "stop")
        message = {"role": "assistant", "content": None} | values
        choice = {"index": 0, "message": message, "finish_reason": ended}
        usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
        self._send(
            200,
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": request["model"],
                "choices": [choice],
                "usage": usage,
            },
        )

    def _send(self, status: int, content: Any, kind: str = "application/json") -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _drip(self, seconds: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.05)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    """A server for as long as the block lasts."""
    server = Server(script)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
