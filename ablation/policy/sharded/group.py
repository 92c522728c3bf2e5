"""Starts the processes that hold one policy together on this machine, asks them, and ends them all when one of them fails."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ablation.errors import ProcessesFailed
from ablation.plan.footprint import TRAINER_PROCESS
from ablation.policy.lasting import in_lasting_thread
from ablation.policy.memory import TooSmall
from ablation.policy.sharded.serve import END, FAILURE, LOG, PULSE_SECONDS, Answer, Loaded, Lost, Told, ToLoad, start

SILENT_SECONDS = 60.0
"""A process that shows no sign of life for so long is stopped or frozen, whatever it does: a thread of its own gives them."""
START_SECONDS = 600.0
"""Before the first sign: Python and torch are imported, on a busy machine perhaps from a slow disk."""
CLOSE_SECONDS = 5.0
GOES_ON = "Nothing that was written is lost: the same command goes on from here."
_DOING = {
    "self_test": "testing the model",
    "sample": "sampling",
    "score": "scoring",
    "update": "computing an update",
    "save": "saving",
    "save_adapter": "saving",
    "load": "loading a checkpoint",
    "load_adapter": "loading an adapter",
}


def need_devices(processes: int) -> None:
    """Raise `TooSmall` if there are GPUs, and fewer than `processes`; or none, and the machine's memory cannot hold them."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if 0 < gpus < processes:
        raise TooSmall(
            f"--processes {processes}: each process needs a GPU of its own; this one sees {gpus}",
            hint="CUDA_VISIBLE_DEVICES says which ones. Nothing was started.",
        )
    needed, memory = processes * TRAINER_PROCESS["cpu"], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if not gpus and needed > memory:
        raise TooSmall(
            f"--processes {processes}: without a model they take {needed / 1e9:,.0f} GB; this machine has {memory / 1e9:,.0f}",
            hint="Nothing was started.",
        )


class Asks:
    """Whoever asks a group of processes to do something together. Not for use by two threads at a time."""

    processes: int
    loaded: Loaded
    _link: Connection

    def ask(self, name: str, *arguments: Any, told: Callable[[int, int], None] | None = None, **options: Any) -> Any:
        """Have all of them do `name` of `rank.RankPolicy`.

        Raises what they refuse with, and then they go on; and `ProcessesFailed` if one of them dies, hangs or fails: all are gone
        then.
        """
        return self._ask((name, arguments, options), _DOING.get(name, "working"), told)

    def _ask(self, what: Any, doing: str, told: Callable[[int, int], None] | None = None) -> Any:
        if not self.alive:
            raise ProcessesFailed("the processes that hold the model were ended", hint="The same command goes on from here.")
        try:
            try:
                self._link.send(what)
            except OSError:
                raise self._failed(doing) from None
            answer = self._answer(doing, told)
        except BaseException:  # at Ctrl-C, too: what they would still answer belongs to nothing
            self.end()
            raise
        if answer.refused is not None:
            raise answer.refused
        return answer.value

    def _answer(self, doing: str, told: Callable[[int, int], None] | None) -> Answer:
        self._watch_anew()
        while True:
            ready = wait([self._link, *self._sentinels()], timeout=self._patience())
            if self._link in ready:
                try:
                    message = self._link.recv()
                except (EOFError, OSError):
                    raise self._failed(doing) from None
                if isinstance(message, Answer):
                    return message
                if isinstance(message, Lost):
                    raise ProcessesFailed(f"{message.why} while {doing}; all of them end", hint=GOES_ON)
                if isinstance(message, Told) and told is not None:
                    told(message.finished, message.tokens)
            elif ready:
                raise self._failed(doing)
            self._watch(doing)

    @property
    def alive(self) -> bool:
        """Whether there is anybody to ask."""
        raise NotImplementedError

    def end(self) -> None:
        """Leave them, whatever they are doing."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave them when they are done."""
        raise NotImplementedError

    def _failed(self, doing: str) -> ProcessesFailed:
        """Why there will be no answer."""
        raise NotImplementedError

    def _sentinels(self) -> list[int]:
        return []

    def _patience(self) -> float | None:
        return None

    def _watch_anew(self) -> None:
        """From now on somebody looks at signs of life."""

    def _watch(self, doing: str) -> None:
        """Raise `ProcessesFailed` if one of them gives none."""


class Group(Asks):
    """Processes of this machine, started here."""

    def __init__(self, processes: int, load: ToLoad, *, silent_seconds: float = SILENT_SECONDS) -> None:
        """Start them and have them load. Raises as `LocalPolicy` does, and `ProcessesFailed`."""
        from torch.multiprocessing import start_processes

        need_devices(processes)
        self.processes, self.silent_seconds = processes, silent_seconds
        self.folder = Path(tempfile.mkdtemp(prefix="ablation-processes-"))
        self._pulses = multiprocessing.get_context("spawn").RawArray("Q", processes)
        self._link, theirs = multiprocessing.Pipe()
        main_thread = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main_thread else None  # theirs from birth: see `serve.start`
        try:
            spawn = partial(
                start_processes,
                start,
                (processes, self.folder, self._pulses, theirs),
                nprocs=processes,
                join=False,
                daemon=True,  # they end with this process's normal end, too
                start_method="spawn",
            )
            self._context = in_lasting_thread(spawn)
        finally:
            if main_thread:
                signal.signal(signal.SIGINT, before)
        theirs.close()
        self._kept = _Kept(self.folder)
        self._end = weakref.finalize(self, _end, self._context.processes, self._link, self._kept)
        try:
            self.loaded = self._ask(load, "loading the model")
        except BaseException:
            self.end()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids, in order of rank."""
        return self._context.pids()

    @property
    def alive(self) -> bool:
        return self._end.alive

    def end(self) -> None:
        self._end()

    def _sentinels(self) -> list[int]:
        return [process.sentinel for process in self._context.processes]

    def _patience(self) -> float:
        return min(1.0, self.silent_seconds / 4)

    def _watch_anew(self) -> None:
        self._looked = time.monotonic()
        self._heard, self._beats = [self._looked] * self.processes, list(self._pulses)

    def _watch(self, doing: str) -> None:
        now = time.monotonic()
        slept, self._looked = now - self._looked > self.silent_seconds / 2, now  # this process was stopped, and they with it
        for rank, beat in enumerate(self._pulses):
            silent = now - self._heard[rank]
            if beat != self._beats[rank] or slept:
                self._heard[rank], self._beats[rank] = now, beat
            elif silent > (self.silent_seconds if beat else START_SECONDS):
                raise self._ended(doing, rank, f"gave no sign of life for {silent:.0f} s (it is stopped or frozen)")

    def _failed(self, doing: str) -> ProcessesFailed:
        """Some are gone: which went first, and why."""
        until = time.monotonic() + CLOSE_SECONDS
        while not any(self._code(rank) for rank in range(self.processes)) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(2 * PULSE_SECONDS)  # the others fail, too, now that one is gone; none of that is the reason
        failures = {}
        for rank in range(self.processes):
            with contextlib.suppress(OSError, ValueError):
                failures[rank] = json.loads((self.folder / FAILURE.format(rank)).read_text())
        for rank in range(self.processes):
            code = self._code(rank)
            if code is not None and rank not in failures and code != 0:
                how = f"ended with exit code {code}"
                if code < 0:
                    how = f"was killed by {_signal_name(-code)}"
                    how += " (the system does so when memory runs out)" if code == -signal.SIGKILL else ""
                return self._ended(doing, rank, how)
        if failures:
            rank = min(failures, key=lambda one: failures[one]["at"])
            return self._ended(doing, rank, f"failed: {failures[rank]['kind']}: {_shortened(failures[rank]['message'])}")
        return self._ended(doing, 0, "closed its connection")

    def _code(self, rank: int) -> int | None:
        return self._context.processes[rank].exitcode

    def _ended(self, doing: str, rank: int, how: str) -> ProcessesFailed:
        pid = self.pids[rank]
        self._kept.keep = True
        self._end()
        return ProcessesFailed(
            f"process {rank} of {self.processes} (pid {pid}) {how} while {doing}; all of them were ended",
            hint=f"{GOES_ON} What it printed is in {self.folder / LOG.format(rank)}.",
        )

    def close(self) -> None:
        """End them, and remove what they printed."""
        if self._end.alive:
            with contextlib.suppress(OSError):
                self._link.send(END)
            until = time.monotonic() + CLOSE_SECONDS
            for process in self._context.processes:
                process.join(max(0.0, until - time.monotonic()))
        self._end()


class _Kept:
    """Whether what the processes printed stays."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.keep = folder, False


def _end(processes: list[Any], link: Connection, kept: _Kept) -> None:
    for process in processes:
        process.kill()  # one that is stopped, too
    link.close()
    for process in processes:
        process.join()
    for name in os.listdir(kept.folder) if kept.keep else []:
        if name.startswith("store"):
            (kept.folder / name).unlink(missing_ok=True)
    if not kept.keep:
        shutil.rmtree(kept.folder, ignore_errors=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _shortened(message: str) -> str:
    text = " ".join(line.strip() for line in message.splitlines() if line.strip())
    return text if len(text) <= 600 else f"{text[:600]} ..."
