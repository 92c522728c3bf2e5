"""A whole program, run once as a script in a sandbox of its own: input by a pipe, output by a pipe."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from dataclasses import dataclass

from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.process import Ended, Sandbox

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Ran:
    """What a script did. `failed` is one word, None if it ended with status 0 and left no process behind."""

    output: bytes
    failed: str | None
    seconds: float
    """From the start of the program, in a sandbox that was ready."""


def run_script(program: bytes, given: bytes, limits: Limits, seconds: float) -> Ran:
    """Run `program` for at most `seconds` with `given` on its standard input. Standard error is thrown away.

    Raises:
        SandboxError: the sandbox could not do its work.
    """
    output = bytearray()
    most = limits.output_kb << 10
    with Sandbox(b"P", {}, limits, program=program) as box:
        box.ready()
        began = time.monotonic()
        try:
            report = _converse(box, given, output, began + seconds, most)
        except Ended as error:
            return Ran(bytes(output), error.reason, time.monotonic() - began)
        taken = time.monotonic() - began
        box.end()
        _drain(box.process.stdout.fileno(), output, most)
    if len(output) > most:
        return Ran(bytes(output), "output_limit", taken)
    return Ran(bytes(output), _failure(report), taken)


def _failure(report: dict) -> str | None:
    if report["status"] == -signal.SIGXCPU:
        return "timeout"
    if report["status"] != 0:
        return "runtime_error"
    return "left_processes" if report["left"] else None


def _converse(box: Sandbox, given: bytes, output: bytearray, deadline: float, most: int) -> dict:
    """Feed the program and read from it until its end is reported."""
    rest = memoryview(given)
    reading, writing, told = box.process.stdout.fileno(), box.process.stdin.fileno(), box.connection.fileno()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    events = {told: select.POLLIN, reading: select.POLLIN, writing: select.POLLOUT}
    while True:
        ready = dict(box.wait(events, deadline))
        if reading in ready and not _drain(reading, output, most):
            del events[reading]
        if len(output) > most:
            raise Ended("output_limit")
        if writing in ready:
            try:
                rest = rest[os.write(writing, rest[:_CHUNK]) :] if rest else rest
            except BlockingIOError:
                continue
            except BrokenPipeError:
                rest = rest[:0]
            if not rest:
                del events[writing]
                box.process.stdin.close()
        if told in ready:
            return json.loads(box.receive(deadline, _CHUNK)[1])


def _drain(descriptor: int, output: bytearray, most: int) -> bool:
    """Take what is there now, up to a little more than `most`; False at the end of the stream."""
    while len(output) <= most:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        output += chunk
    return True
