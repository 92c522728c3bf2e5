"""How a sandbox is started: the command line of bubblewrap, or, if the user took the risk in so many words, plain Python."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablation.problems.sandbox import seccomp
from ablation.problems.sandbox.failure import NoSandbox
from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.python_files import LIBRARIES, python_files

RISK_VARIABLE = "ABLATION_UNSAFE_RUN_CODE_WITHOUT_SANDBOX"
RISK_WORDS = "I accept the risk"
INSTALL = (
    "Install bubblewrap 0.7 or later: `apt-get install bubblewrap` (Debian, Ubuntu) or `dnf install bubblewrap` (Fedora). "
    f'To run code that models wrote without a sandbox, with all your rights, set {RISK_VARIABLE}="{RISK_WORDS}".'
)
NOBODY = 65534
_INSIDE = Path(__file__).parent
_FIRST_OWN_USER = 1 << 30
_PYTHON = ("-I", "-S", "-X", "frozen_modules", "-X", "utf8")
_slots: Iterator[int] = itertools.count()


@dataclass(frozen=True)
class Launch:
    """A command to start, its environment, and the user that the process inside is to become (`-`: it stays)."""

    command: list[str]
    environment: dict[str, str]
    sandboxed: bool


def risk_accepted() -> bool:
    """Whether the user took the risk of running code without a sandbox, in exactly those words."""
    return os.environ.get(RISK_VARIABLE) == RISK_WORDS


def bwrap_path() -> str | None:
    """bubblewrap's program, None if it is not installed."""
    return shutil.which("bwrap")


def launch(bwrap: str, limits: Limits, *, channel: int, seccomp_file: int, info: int, program: int | None) -> Launch:
    """Start in bubblewrap. `channel`, `seccomp_file`, `info` and `program` are descriptors that the command inherits.

    As root there is no user namespace: root's processes are exempt from the limit on processes, whatever they are called
    inside. The process inside starts with the right to change its user and nothing else, and becomes a user of its own before
    it reads a program.
    """
    root = os.geteuid() == 0
    files = python_files()
    command = [bwrap, "--die-with-parent", "--new-session", "--clearenv", "--setenv", "LD_LIBRARY_PATH", LIBRARIES]
    command += [
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--hostname",
        "sandbox",
    ]
    command += ["--cap-drop", "ALL"]
    if root:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    parents = {parent for _, target in files.mounts for parent in Path(target).parents if parent != Path("/")}
    for folder in sorted({*map(str, parents), "/dev", "/program", "/sandbox"}):
        command += ["--perms", "0755", "--dir", folder]  # those that bubblewrap makes by itself may be root's alone
    for source, target in files.mounts:
        command += ["--ro-bind", source, target]
    for folder in files.hidden:
        command += ["--tmpfs", folder, "--remount-ro", folder]
    for name in ("inside.py", "values.py"):
        command += ["--ro-bind", str(_INSIDE / name), f"/sandbox/{name}"]
    for device in ("/dev/null", "/dev/urandom"):
        command += ["--dev-bind", device, device]
    if program is not None:
        command += ["--perms", "0444", "--ro-bind-data", str(program), "/program/main.py"]
    command += [
        "--perms",
        "0777",
        "--size",
        str(limits.disk_mb << 20),
        "--tmpfs",
        "/work",
        "--chdir",
        "/work",
        "--remount-ro",
        "/",
    ]
    command += ["--seccomp", str(seccomp_file), "--info-fd", str(info)]
    command += [files.executable, *_PYTHON, "/sandbox/inside.py", str(channel), str(own_user()) if root else "-"]
    return Launch(command, {}, True)


def launch_without_sandbox(channel: int) -> Launch:
    """Start plain Python. Only for who took the risk (`risk_accepted`)."""
    return Launch([sys.executable, *_PYTHON, str(_INSIDE / "inside.py"), str(channel), "-"], {}, False)


def own_user() -> int:
    """A user id for one sandbox: its processes are counted alone and can signal no others.

    Made from this process's id and a counter; `nobody` where this machine's user namespace has no such ids.
    """
    user = _FIRST_OWN_USER + (os.getpid() % (1 << 22)) * 64 + next(_slots) % 64
    with open("/proc/self/uid_map") as lines:
        for line in lines:
            first, _, count = map(int, line.split())
            if first <= user < first + count:
                return user
    return NOBODY


def choose() -> str | None:
    """The bubblewrap to use; None to run without a sandbox, which the user accepted.

    Raises:
        NoSandbox: there is neither.
    """
    if bwrap := bwrap_path():
        if not seccomp.supported():
            raise NoSandbox("there is no system call filter for this kind of processor", hint="Use x86_64 or aarch64.")
        return bwrap
    if risk_accepted():
        return None
    raise NoSandbox("bubblewrap (bwrap) is not installed, and code is only run in its sandbox", hint=INSTALL)
