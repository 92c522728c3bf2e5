"""Worker processes that can be killed: graders run there what may hang, eat memory or crash.

A worker is a prepared process (its packages loaded) and a child of it that does the work under limits of processor time and
memory; `problems.worker_process` has that side. Workers stay for the next call; any thread may ask.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from ablation.problems.worker_process import receive, send

CHUNK = 32
"""Items in one message."""
START_SECONDS = 120
_MAIN = "from ablation.problems.worker_process import main; main()"


@dataclass(frozen=True)
class Limits:
    """What one item may use."""

    seconds: float = 5.0
    """Processor time, user and system, of the item."""
    memory: int = 1 << 30
    """Address space of the child in bytes, what its packages take included."""

    @property
    def wall_seconds(self) -> float:
        """After so long without an answer the machine is to blame, not the item."""
        return 10 * self.seconds + 30


@dataclass(frozen=True)
class Failure:
    """No answer for this item. `time` and `memory`: it went over a limit. The others say nothing about the item:

    `crash`: the child died twice on it; `stalled`: no answer in `Limits.wall_seconds`; `start`: no worker could be started.
    """

    kind: Literal["time", "memory", "crash", "stalled", "start"]
    detail: str = ""


def run_items(module: str, items: Sequence[Any], *, limits: Limits | None = None, workers: int = 1) -> list[Any]:
    """What `module.work` makes of each item (JSON values both), or a `Failure`, in order. Safe to call from any thread."""
    limits = limits or Limits()
    chunks = deque((start, items[start : start + CHUNK]) for start in range(0, len(items), CHUNK))
    results: list[Any] = [None] * len(items)
    call = _Call(module, limits)

    def drain() -> None:
        while chunks and not call.stopped:
            try:
                start, chunk = chunks.popleft()
            except IndexError:
                return
            results[start : start + len(chunk)] = call.run(chunk)

    threads = min(workers, len(chunks))
    if threads <= 1:
        drain()
        return results
    with ThreadPoolExecutor(threads) as pool:
        try:
            for done in [pool.submit(drain) for _ in range(threads)]:
                done.result()
        except BaseException:  # Ctrl-C, for instance: nobody waits for these results any more
            call.stop()
            raise
    return results


def close_workers() -> None:
    """End every idle worker. The next call starts new ones."""
    with _lock:
        idle = [worker for workers in _idle.values() for worker in workers]
        _idle.clear()
    for worker in idle:
        worker.kill()  # it is idle and keeps nothing


class _WorkerGone(Exception):
    pass


class _Worker:
    def __init__(self, module: str, limits: Limits) -> None:
        self.limits = limits
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, module, str(limits.seconds), str(limits.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path), "PYTHONHASHSEED": "0"},
            start_new_session=True,  # so that the child can be killed with it
        )
        assert self.process.stdin and self.process.stdout
        self.requests, self.answers = self.process.stdin.fileno(), self.process.stdout.fileno()
        try:
            self._answer(START_SECONDS)
        except (_WorkerGone, TimeoutError):
            self.kill()
            raise

    def run(self, items: Sequence[Any], results: list[Any]) -> None:
        """Appends to `results` until it is as long as `items`.

        Raises:
            TimeoutError: the next item got no answer in time.
            _WorkerGone: the prepared process itself is dead.
        """
        died_at = -1
        self._ask(items[len(results) :])
        while len(results) < len(items):
            answer = self._answer(self.limits.wall_seconds)
            if "found" in answer:
                results.append(answer["found"])
                continue
            # An old child may have had less memory left than a new one, and a crash may be the machine's: both get a second try.
            if answer["died"] == "time" or died_at == len(results):
                results.append(Failure(answer["died"], f"exit code {answer['code']}"))
            died_at = len(results)
            if len(results) < len(items):
                self._ask(items[len(results) :])

    def kill_process(self) -> None:
        """From any thread: the one that waits for an answer then finds it gone, and closes its pipes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        self.kill_process()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()

    def _ask(self, items: Sequence[Any]) -> None:
        try:
            send(self.requests, list(items))
        except BrokenPipeError as error:
            raise _WorkerGone from error

    def _answer(self, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while not select.select([self.answers], [], [], min(1.0, max(deadline - time.monotonic(), 0)))[0]:
            if self.process.poll() is not None:  # its child may live on and keep the pipe open
                raise _WorkerGone("the worker was killed")
            if time.monotonic() > deadline:
                raise TimeoutError("no answer in time")
        answer = receive(self.answers)
        if answer is None:
            raise _WorkerGone(self._last_words())
        return answer

    def _last_words(self) -> str:
        assert self.process.stderr
        lines = self.process.stderr.read(65536).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


class _Lock:
    """One lock, new in every fork: another thread may hold the parent's at that moment."""

    def __init__(self) -> None:
        self.held = threading.Lock()

    def __enter__(self) -> None:
        self.held.acquire()

    def __exit__(self, *_: object) -> None:
        self.held.release()


_lock = _Lock()
_idle: dict[tuple[str, Limits], list[_Worker]] = {}


class _Call:
    """One call of `run_items`, whose threads can be told to stop: their workers are killed in the middle of an item."""

    def __init__(self, module: str, limits: Limits) -> None:
        self.module, self.limits = module, limits
        self.stopped = False
        self._busy: set[_Worker] = set()

    def stop(self) -> None:
        with _lock:
            self.stopped = True
            for worker in self._busy:
                worker.kill_process()

    def run(self, items: Sequence[Any]) -> list[Any]:
        """The results of one chunk; fewer if the call was stopped."""
        results: list[Any] = []
        gone_at = -1
        while len(results) < len(items):
            try:
                worker = self._take()
            except (_WorkerGone, TimeoutError, OSError) as error:
                return results + [Failure("start", str(error))] * (len(items) - len(results))
            if worker is None:
                return results
            try:
                worker.run(items, results)
            except TimeoutError:
                self._drop(worker)
                results.append(Failure("stalled"))
            except _WorkerGone:
                self._drop(worker)
                if gone_at == len(results):
                    results.append(Failure("crash", "the worker died"))
                gone_at = len(results)
            except BaseException:
                self._drop(worker)
                raise
            else:
                with _lock:
                    self._busy.discard(worker)
                    _idle.setdefault((self.module, self.limits), []).append(worker)
        return results

    def _take(self) -> _Worker | None:
        """A worker; None if the call was stopped."""
        with _lock:
            idle = _idle.get((self.module, self.limits))
            worker = idle.pop() if idle else None
        worker = worker or _Worker(self.module, self.limits)
        with _lock:
            if not self.stopped:
                self._busy.add(worker)
                return worker
        worker.kill()
        return None

    def _drop(self, worker: _Worker) -> None:
        with _lock:
            self._busy.discard(worker)
        worker.kill()


def _forget() -> None:
    """In a fork of this process: the workers and their pipes belong to the parent."""
    _lock.held = threading.Lock()
    _idle.clear()


atexit.register(close_workers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
