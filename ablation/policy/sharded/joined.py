"""Processes that torchrun started, perhaps on several machines, as the command that the first of them runs sees them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from functools import cache
from multiprocessing.connection import Connection, Pipe

from ablation.errors import ProcessesFailed, UsageError
from ablation.policy.sharded.group import Asks
from ablation.policy.sharded.serve import UNLOAD, ToLoad

LINK = "ABLATION_PROCESSES_LINK"
"""In the environment of the command: the file descriptor over which it asks, and how many processes there are."""

_TORCHRUN = ("TORCHELASTIC_", "GROUP_", "LOCAL_", "ROLE_", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Joined(Asks):
    """They stay when a model is unloaded, and end with the command."""

    def __init__(self, processes: int, load: ToLoad) -> None:
        self._link, count = _link()
        if processes != count:
            raise UsageError(f"--processes {processes}: torchrun started {count}", hint="Leave the option out.")
        self.processes, self._open = processes, True
        self.loaded = self._ask(load, "loading the model")

    @property
    def alive(self) -> bool:
        return self._open and not self._link.closed

    def end(self) -> None:
        self._link.close()  # which ends them all

    def close(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessesFailed):
                self._ask(UNLOAD, "unloading")
        self._open = False

    def _failed(self, doing: str) -> ProcessesFailed:
        return ProcessesFailed(
            f"the processes that torchrun started are gone, while {doing}",
            hint="torchrun says which of them failed first. Nothing that was written is lost: the same command goes on.",
        )


def under_torchrun() -> bool:
    """Whether this command was started by the first of processes that are there already."""
    return LINK in os.environ


@cache
def _link() -> tuple[Connection, int]:
    descriptor, count = map(int, os.environ[LINK].split(":"))
    os.set_inheritable(descriptor, False)
    if sys.platform == "linux":  # they are gone: this command says so and ends
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    return Connection(descriptor), count


def start_command(arguments: list[str], processes: int) -> tuple[subprocess.Popen, Connection]:
    """`ablation ARGUMENTS` beside this process, and the link over which it asks."""
    ours, theirs = Pipe()
    told = {LINK: f"{theirs.fileno()}:{processes}", "ABLATION_PROCESSES": str(processes)}
    # What torchrun tells its processes is not for the command, nor for what that starts.
    own = {name: value for name, value in os.environ.items() if not name.startswith(_TORCHRUN)}
    command = subprocess.Popen([sys.executable, "-m", "ablation", *arguments], env=own | told, pass_fds=(theirs.fileno(),))
    theirs.close()
    return command, ours
