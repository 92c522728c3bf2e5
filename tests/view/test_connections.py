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


@pytest.fixture
def served(tmp_path):
    (tmp_path / "runs").mkdir()
    command = [
        "prlimit",
        f"--nofile={FILES}",
        sys.executable,
        "-m",
        "ablation",
        "view",
        str(tmp_path / "runs"),
        "--port",
        "0",
        "--token",
    ]

    log = (tmp_path / "log").open("w+")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        address = process.stdout.readline().split(" at ")[1].strip()
        try:
            yield urlsplit(address), tmp_path / "log"
        finally:
            process.terminate()
            process.wait(20)
    log.close()


def connect(address, said: bytes = b"") -> socket.socket:
    made = socket.create_connection((address.hostname, address.port), timeout=10)
    with contextlib.suppress(OSError):
        made.sendall(said)
    return made


def status(address) -> int:
    asked = http.client.HTTPConnection(address.hostname, address.port, timeout=5)
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


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"]
)
def test_many_half_open_connections_do_not_keep_readers_out(served, said):
    address, log = served
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    opened = [connect(address, said) for _ in range(3 * FILES)]
    began = time.monotonic()
    assert status(address) == 303  # the cookie for the token
    assert time.monotonic() - began < 4
    assert len(log.read_text().splitlines()) <= 2
    assert "Traceback" not in log.read_text()
    for one in opened:
        one.close()


def test_a_client_has_a_few_seconds_for_its_request(served):
    address, _ = served
    slow = connect(address, b"GET / HTTP/1.1\r\n")
    began = time.monotonic()
    while not is_closed(slow):
        with contextlib.suppress(OSError):
            slow.sendall(b"X-Wait: 1\r\n")  # a byte now and then does not help
        assert time.monotonic() - began < REQUEST_SECONDS + 5
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
