"""Clients that open connections and say nothing, against the real server."""

from __future__ import annotations

import contextlib
import http.client
import logging
import resource
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest

from ablation.view.connections import REQUEST_SECONDS, OnceAMinute

FILES = 128
"""Files that the server may open: its limit is reached soon."""
LONG = 60
"""Seconds in which a busy machine answers."""


SERVE = """import sys
import ablation.view.connections as connections
from ablation.cli.main import main
connections.REQUEST_SECONDS = {seconds}
sys.argv[:1] = ["ablation", "view"]
main()
"""


@pytest.fixture
def served(tmp_path, request):
    """With the server's own limit for a request, or the test's parameter in its place."""
    (tmp_path / "runs").mkdir()
    code = SERVE.format(seconds=getattr(request, "param", REQUEST_SECONDS))
    command = ["prlimit", f"--nofile={FILES}", sys.executable, "-c", code, str(tmp_path / "runs"), "--port", "0", "--token"]

    log = (tmp_path / "log").open("w+")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        address = process.stdout.readline().split(" at ")[1].strip()
        try:
            yield urlsplit(address), tmp_path / "log"
        finally:
            process.terminate()
            process.wait(60)
    log.close()


def connect(address, said: bytes = b"") -> socket.socket:
    made = socket.create_connection((address.hostname, address.port), timeout=LONG)
    with contextlib.suppress(OSError):
        made.sendall(said)
    return made


def status(address) -> int:
    asked = http.client.HTTPConnection(address.hostname, address.port, timeout=LONG)
    asked.request("GET", f"{address.path}?{address.query}")
    return asked.getresponse().status


def is_closed(one: socket.socket) -> bool:
    one.settimeout(0.2)
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("served", [10 * LONG], indirect=True)  # so none of them ends by itself
@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"]
)
def test_many_half_open_connections_do_not_keep_readers_out(served, said):
    address, log = served
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with contextlib.ExitStack() as opened:
        for _ in range(3 * FILES):
            opened.enter_context(connect(address, said))
        assert status(address) == 303  # the cookie for the token
        assert len(log.read_text().splitlines()) <= 2
        assert "Traceback" not in log.read_text()


def test_a_client_has_a_few_seconds_for_its_request(served):
    address, _ = served
    slow = connect(address, b"GET / HTTP/1.1\r\n")
    began = time.monotonic()
    while not is_closed(slow):
        with contextlib.suppress(OSError):
            slow.sendall(b"X-Wait: 1\r\n")  # a byte now and then does not help
        assert time.monotonic() - began < REQUEST_SECONDS + LONG
    assert time.monotonic() - began > REQUEST_SECONDS - 1
    assert status(address) == 303


def test_one_line_a_minute(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    log = OnceAMinute()
    record = logging.LogRecord("asyncio", logging.ERROR, "x", 1, "first %s\nmore", ("line",), (ValueError, ValueError(), None))
    assert [log.filter(record), log.filter(record)] == [True, False]
    assert (record.getMessage(), record.exc_info) == ("first line", None)
    now[0] += 61
    assert log.filter(record)
