"""The runner's side of the engine's process: started, asked, watched, and never waited for in vain."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ablation.errors import EngineFailed, UsageError
from ablation.policy.lasting import in_lasting_thread
from ablation.policy.vllm.messages import Alive, Close, Done, EngineSettings, Failed, Finished

SILENT_SECONDS = 1800.0
"""An engine that is at work tells so every second; one that says nothing for this long hangs."""
START_SECONDS = 3600.0
"""A large model is read from a slow disk and compiled in less."""
CLOSE_SECONDS = 10.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
_PROGRAM = "from ablation.policy.vllm.engine_process import main; main()"
_DOING = {
    "Load": "loading an adapter",
    "Sample": "sampling",
    "Score": "scoring",
    "Sleep": "going to sleep",
    "Wake": "waking up",
}


class EngineRefused(Exception):
    """The engine lives and will not do what was asked; the message is its own."""


class EngineClient:
    """One engine in one process. Closed by `close`, by the end of this process, or by being forgotten."""

    copies = 1
    """See `replicas.Engine`."""

    def __init__(self, settings: EngineSettings, given_up: threading.Event | None = None) -> None:
        """Start the engine and wait until it is ready, or until `given_up` is set by another thread.

        Raises `UsageError` with the engine's reason if it does not start, `EngineFailed` if its process dies without one.
        """
        self.settings = settings
        self._given_up = given_up
        self.folder = Path(tempfile.mkdtemp(prefix="ablation-vllm-"))
        self.log = self.folder / "engine.log"
        ours, theirs = socket.socketpair()
        lifeline_read, lifeline = os.pipe()
        with self.log.open("wb") as log:
            arguments = map(str, (theirs.fileno(), lifeline_read, os.getpid()))
            start = partial(
                subprocess.Popen,
                [sys.executable, "-P", "-c", _PROGRAM, *arguments],
                env=_environment(settings, self.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(), lifeline_read),
                start_new_session=True,
            )
            self._process = in_lasting_thread(start)
        theirs.close()
        os.close(lifeline_read)
        self._connection = Connection(ours.detach())
        self._left = _Left(self.folder)
        self._end = weakref.finalize(self, _end, self._process, self._connection, lifeline, self._left)
        try:
            self._send(settings, "starting")
            self.facts: dict[str, Any] = self._wait("starting", None, START_SECONDS)
        except EngineRefused as refused:
            self.kill()
            raise UsageError(
                f"policy: vLLM does not start with this model and plan: {refused}",
                hint=f"Nothing was sampled. Its whole output is in {self.log}.",
            ) from None
        except Exception:
            self.kill()
            raise
        except BaseException:
            self._end()
            raise

    @property
    def pid(self) -> int:
        """Process id of the engine, and of its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether there is an engine to ask."""
        return self._end.alive

    def ask(self, request: Any, told: Callable[[Alive | Finished], None] | None = None) -> Any:
        """Have `request` carried out; `told` is given what comes before it is done. Returns what the engine answered.

        Raises `EngineRefused` if the engine will not, `EngineFailed` if it breaks, dies or hangs: it is gone then.
        """
        doing = _DOING[type(request).__name__]
        try:
            self._send(request, doing)
            return self._wait(doing, told, SILENT_SECONDS)
        except EngineRefused:
            raise
        except Exception:
            self.kill()
            raise
        except BaseException:  # at Ctrl-C, too: what it would still send belongs to nothing, and nobody asks why it ended
            self._end()
            raise

    def _send(self, request: Any, doing: str) -> None:
        try:
            self._connection.send(request)
        except OSError:
            raise self._dead(doing) from None

    def _wait(self, doing: str, told: Callable[[Alive | Finished], None] | None, patience: float) -> Any:
        heard = time.monotonic()
        while True:
            try:
                if not self._connection.poll(1.0):
                    if self._exit_code() is not None and not self._connection.poll(0):
                        raise self._dead(doing)
                    if doing == "starting" and self._given_up is not None and self._given_up.is_set():
                        raise EngineFailed("vLLM's engine was ended while starting: another one did not start")
                    if time.monotonic() - heard > patience:
                        raise EngineFailed(
                            f"vLLM's engine said nothing for {patience:g} s while {doing}; it was ended", hint=self._hint()
                        )
                    continue
                answer = self._connection.recv()
            except (EOFError, OSError):
                raise self._dead(doing) from None
            heard = time.monotonic()
            if isinstance(answer, Done):
                return answer.value
            if isinstance(answer, Failed):
                if not answer.fatal or doing == "starting":
                    raise EngineRefused(_shortened(answer.message))
                raise EngineFailed(
                    f"vLLM's engine broke while {doing}: {answer.kind}: {_shortened(answer.message)}", hint=self._hint()
                )
            if told is not None:
                told(answer)

    def _exit_code(self) -> int | None:
        """As `subprocess` has it, None while it lives. It is not reaped: its number stays that of its process group."""
        found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _dead(self, doing: str) -> EngineFailed:
        until = time.monotonic() + CLOSE_SECONDS
        while (code := self._exit_code()) is None and time.monotonic() < until:
            time.sleep(0.05)
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"was killed by {_signal_name(-code)}"
            how += " (the system does so when memory runs out)" if code == -signal.SIGKILL else ""
        else:
            how = f"ended with exit code {code}"
        return EngineFailed(f"vLLM's engine {how} while {doing}", hint=self._hint())

    def _hint(self) -> str:
        return f"Nothing that was written is lost: the same command goes on from here. The engine's output is in {self.log}."

    def strike(self) -> None:
        """End the processes, from any thread: whoever waits for an answer is told that there will be none."""
        if self._end.alive:
            self._left.keep_log = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the engine at once. Its log stays."""
        self._left.keep_log = True
        self._end()

    def close(self) -> None:
        """End the engine and remove its log."""
        if self._end.alive:
            with contextlib.suppress(OSError):
                self._connection.send(Close())
            until = time.monotonic() + CLOSE_SECONDS
            while self._exit_code() is None and time.monotonic() < until:
                time.sleep(0.02)
        self._end()


@dataclass
class _Left:
    """What is on disk of an engine."""

    folder: Path
    keep_log: bool = False


def _end(process: subprocess.Popen, connection: Connection, lifeline: int, left: _Left) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its leader was not waited for, so the number is still its own
    connection.close()
    os.close(lifeline)
    process.wait()
    if not left.keep_log:
        shutil.rmtree(left.folder, ignore_errors=True)


SET_HERE = ("VLLM_CPU_", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK")
WITHOUT_EFFECT = (
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT",
    "VLLM_ASSETS_CACHE",
    "VLLM_LOGGING_",
    "VLLM_CONFIGURE_LOGGING",
    "VLLM_API_KEY",
)


def vllm_variables() -> dict[str, str]:
    """What the environment tells vLLM that could move a number: it reaches the engine, so the engine's record has it."""
    known = (*SET_HERE, *WITHOUT_EFFECT)
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith("VLLM_") and not name.startswith(known)}


def _environment(settings: EngineSettings, temporary: Path) -> dict[str, str]:
    """This process's own, but for threads, what could move a result, and what would ask the network.

    What vLLM leaves in its temporary folder when it is killed goes with that of this engine.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_CPU_")}
    own.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}"))
    packages = str(Path(__file__).resolve().parents[3])
    if settings.devices is not None:
        own[VISIBLE] = settings.devices
    return own | {
        "PYTHONPATH": os.pathsep.join(filter(None, (packages, own.get("PYTHONPATH")))),
        "OMP_NUM_THREADS": str(settings.threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else the CPU build wants a memory node for each part of a split layer
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine core in that process: see `engine_process`
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": str(temporary),
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the many between the first and the last real-time signal
        return f"signal {number}"


def _shortened(message: str) -> str:
    """The lines of an error that say something, in one line."""
    text = " ".join(line.strip() for line in message.splitlines() if line.strip())
    return text if len(text) <= 600 else f"{text[:600]} ..."
