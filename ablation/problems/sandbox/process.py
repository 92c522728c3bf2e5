"""One sandbox from start to end, as its parent sees it: frames go in and out until a deadline, and then nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ablation.problems.sandbox import bubblewrap, seccomp
from ablation.problems.sandbox.failure import SandboxError
from ablation.problems.sandbox.inside import HEADER
from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.memory import held_bytes

START_SECONDS = 30.0
END_SECONDS = 10.0
_STATUS_SECONDS = 1.0  # for the exit status of a process whose socket is closed
_STEP = 0.05  # seconds between two looks at the memory
_SMALL = 1 << 16


class Ended(Exception):
    """The answer went over a limit, ended by itself, or sent what nobody asked for. `reason` is one word for the grade."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Sandbox:
    """A sandbox that is starting; `ready` waits for it. Use it in a `with`, in the thread that made it (bubblewrap dies with
    that).

    `kind` and `setup` are the first frame (`inside.main`). With `program`, the script's input and output are pipes.

    Raises:
        SandboxError: it could not be started.
    """

    def __init__(self, kind: bytes, setup: dict[str, Any], limits: Limits, program: bytes | None = None) -> None:
        self.limits = limits
        self._init_process: int | None = None  # descriptor of the namespace's first process: with it, all are dead
        self._namespace: int | None = None
        self._work: int | None = None  # descriptor of the working folder
        self._folder: tempfile.TemporaryDirectory | None = None
        self._next_look = 0.0
        self._nonce = b""
        bwrap = bubblewrap.choose()
        self.connection, inner = socket.socketpair()
        self._info, info = os.pipe()
        handed = [inner.detach(), info]
        try:
            if bwrap is None:
                command = bubblewrap.launch_without_sandbox(handed[0])
                self._folder = tempfile.TemporaryDirectory(prefix="ablation-")
                if program is not None:
                    script = Path(self._folder.name) / "main.py"
                    script.write_bytes(program)
                    setup = {**setup, "program": str(script)}
            else:
                handed.append(_memory_file(seccomp.program()))
                if program is not None:
                    handed.append(_memory_file(program))
                command = bubblewrap.launch(
                    bwrap,
                    limits,
                    channel=handed[0],
                    info=info,
                    seccomp_file=handed[2],
                    program=handed[3] if program is not None else None,
                )
            piped = subprocess.DEVNULL if program is None else subprocess.PIPE
            try:
                self.process = subprocess.Popen(
                    command.command,
                    stdin=piped,
                    stdout=piped,
                    stderr=subprocess.PIPE,
                    env=command.environment,
                    pass_fds=handed,
                    cwd=self._folder.name if self._folder else "/",
                    start_new_session=True,
                )
            except OSError as error:
                raise SandboxError(f"{command.command[0]}: could not be started: {error.strerror or error}") from error
        except BaseException:
            self.connection.close()
            os.close(self._info)
            if self._folder:
                self._folder.cleanup()
            raise
        finally:
            for descriptor in handed:
                os.close(descriptor)
        self.sandboxed = command.sandboxed
        self.connection.setblocking(False)
        self._first: tuple[bytes, dict[str, Any]] | None = (
            kind,
            {**setup, "limits": {**asdict(limits), "count_processes": command.sandboxed}},
        )

    def ready(self) -> None:
        """Wait, the first time, until it has taken its limits; from then on it loads its program.

        Raises:
            SandboxError: it could not be started.
        """
        if self._first is None:
            return
        (kind, setup), self._first = self._first, None
        deadline = time.monotonic() + START_SECONDS
        try:
            self.send(kind, marshal.dumps(setup), deadline)
            answer, _ = self.receive(deadline, _SMALL, watch=False)
        except Ended as error:
            self.end()
            said = (self.process.stderr.read1(2000) if self.process.stderr else b"").decode("utf-8", "replace").strip()
            why = f": {said.splitlines()[-1]}" if said else ""
            raise SandboxError(f"the sandbox could not be started ({error.reason}){why}") from error
        assert answer == b"R"
        if self.sandboxed:
            pid = json.loads(os.read(self._info, _SMALL))["child-pid"]
            try:
                self._init_process = os.pidfd_open(pid)
                self._namespace = os.stat(f"/proc/{pid}/ns/pid").st_ino
                self._work = os.open(f"/proc/{pid}/root/work", os.O_PATH)
            except OSError as error:
                raise SandboxError(f"the sandbox ended before it was used: {error.strerror}") from error

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, kind: bytes, content: bytes, deadline: float) -> None:
        """Send a frame under a new nonce, which the next frame received must repeat."""
        self._nonce = os.urandom(16)
        self._write(HEADER.pack(self._nonce, kind, len(content)) + content, deadline)

    def reply(self, kind: bytes, content: bytes, deadline: float) -> None:
        """Answer what the other side asked, under the nonce of before."""
        self._write(HEADER.pack(self._nonce, kind, len(content)) + content, deadline)

    def _write(self, frame: bytes, deadline: float) -> None:
        rest = memoryview(frame)
        while rest:
            self.wait({self.connection.fileno(): select.POLLOUT}, deadline)
            try:
                rest = rest[self.connection.send(rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Ended("exited") from error

    def receive(self, deadline: float, most: int, watch: bool = True) -> tuple[bytes, bytes]:
        """Kind and content of the next frame.

        Raises:
            Ended: timeout, exited, memory_limit, output_limit (content longer than `most`) or forged_result (another nonce).
        """
        nonce, kind, length = HEADER.unpack(self._read(HEADER.size, deadline, watch))
        if nonce != self._nonce:
            raise Ended("forged_result")
        if length > most:
            raise Ended("output_limit")
        return kind, self._read(length, deadline, watch)

    def _read(self, length: int, deadline: float, watch: bool) -> bytes:
        parts: list[bytes] = []
        while length:
            self.wait({self.connection.fileno(): select.POLLIN}, deadline, watch)
            try:
                part = self.connection.recv(min(length, _SMALL))
            except BlockingIOError:
                continue
            except OSError as error:
                raise Ended("exited") from error
            if not part:
                raise Ended("timeout" if self._used_its_time() else "exited")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _used_its_time(self) -> bool:
        """Whether the process has died of its limit of CPU time (bubblewrap reports the signal as a shell does)."""
        try:
            return self.process.wait(_STATUS_SECONDS) in (-signal.SIGXCPU, 128 + signal.SIGXCPU)
        except subprocess.TimeoutExpired:
            return False

    def wait(self, events: dict[int, int], deadline: float, watch: bool = True) -> list[tuple[int, int]]:
        """Those of `events` (descriptor: poll flags) that came first. Looks at the memory from time to time, also of a program
        that always has something to say. Raises Ended."""
        poll = select.poll()
        for descriptor, flags in events.items():
            poll.register(descriptor, flags)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Ended("timeout")
            if watch:
                self._look_at_memory()
            if ready := poll.poll(1000 * min(left, _STEP)):
                return ready

    def _look_at_memory(self) -> None:
        began = time.monotonic()
        if self._namespace is None or began < self._next_look:
            return
        if held_bytes(self._namespace, self._work) > self.limits.memory_mb << 20:
            raise Ended("memory_limit")
        taken = time.monotonic() - began
        self._next_look = began + max(_STEP, 5 * taken)  # on a machine with very many processes it takes its time

    def end(self) -> None:
        """End all processes of the sandbox and wait until they are gone; what they wrote can still be read."""
        if self.process.returncode is not None and self._init_process is None:
            return
        if self._init_process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_process, signal.SIGKILL)
            gone = select.poll()
            gone.register(self._init_process, select.POLLIN)
            if not gone.poll(1000 * END_SECONDS):
                raise SandboxError(f"processes of a sandbox were still there {END_SECONDS:.0f} s after they were killed")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)  # it collects the namespace's first process, and ends
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill() if self.sandboxed else os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def close(self) -> None:
        """Kill what is left and let go of everything."""
        try:
            self.end()
        finally:
            self.connection.close()
            os.close(self._info)
            for descriptor in (self._init_process, self._work):
                if descriptor is not None:
                    os.close(descriptor)
            self._init_process = self._work = None
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            if self._folder:
                self._folder.cleanup()


def _memory_file(content: bytes) -> int:
    """A descriptor of a file in memory, to be read from its beginning."""
    descriptor = os.memfd_create("ablation")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
