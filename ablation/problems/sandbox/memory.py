"""How much memory the processes of a sandbox hold together: limits of a process say nothing about sixteen of them.

Memory is what they hold themselves and what the kernel holds for them: names in the working folder, sockets, pipes, locks and
lists of mappings.
What the kernel would hold unseen, the system call filter refuses.
"""

from __future__ import annotations

import contextlib
import os
import stat

_OWN = (b"RssAnon:", b"RssShmem:", b"VmSwap:", b"VmPTE:", b"HugetlbPages:")
"""Lines of `/proc/PID/status`: private memory, memory that processes share or that is a file in memory, both of it that was
swapped out, page tables, and huge pages, in kB."""
_NAME, _LOCK, _PIPE, _SOCKET = 2 << 10, 64 << 10, 64 << 10, 512 << 10
"""What one of each counts, in bytes, at least what it can make the kernel hold: inode, entry and a link's target; a lock of a
part of a file (256, but the time to let go of many grows with their square); a pipe's buffer; a local socket's queue."""
_MAPPING, _INHERITED = 512, 64
"""What one mapping of a process counts, in bytes, and again for each process that it may have come from by forks."""
_MOST_READ = 1 << 22


def processes_of(namespace: int) -> list[int]:
    """Process ids, as seen from here, of all living processes in the PID namespace with this inode number."""
    found = []
    for name in _names("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}/ns/pid").st_ino == namespace and _lives(name):
                    found.append(int(name))
            except OSError:  # it has ended, or belongs to somebody else
                continue
    return found


def held_bytes(namespace: int, work: int | None) -> int:
    """Memory of the processes of that namespace, without pages that come from files, and what the kernel holds for them.

    `work` is a descriptor of their working folder, a file system of its own.
    """
    processes = processes_of(namespace)
    own = [_own_memory(pid) for pid in processes]
    mapping = _MAPPING + len(processes) * _INHERITED
    return sum(size + mappings * mapping for size, mappings in own) + _kernel_bytes(processes, work)


def _lives(pid: str) -> bool:
    """Whether a thread of it has not ended; of a process that only waits to be collected all have."""
    states = (_read(f"/proc/{pid}/task/{thread}/stat").rpartition(b") ")[2][:1] for thread in _names(f"/proc/{pid}/task"))
    return any(state not in b"ZX" for state in states if state)


def _own_memory(pid: int) -> tuple[int, int]:
    """Bytes and number of mappings of one process. A thread that has ended, be it the first, shows none; all others the same."""
    for thread in _names(f"/proc/{pid}/task"):
        lines = _read(f"/proc/{pid}/task/{thread}/status").splitlines()
        if found := [int(line.split()[1]) for line in lines if line.startswith(_OWN)]:
            return sum(found) << 10, _read(f"/proc/{pid}/task/{thread}/maps").count(b"\n")
    return 0, 0


def _kernel_bytes(processes: list[int], work: int | None) -> int:
    held = 0
    if work is not None:
        space = os.fstatvfs(work)
        held += (space.f_files - space.f_ffree) * _NAME
    pipes = {(file.st_dev, file.st_ino) for pid in processes for file in _open_files(pid) if stat.S_ISFIFO(file.st_mode)}
    listed = (_read(f"/proc/{pid}/task/{thread}/net/unix") for pid in processes for thread in _names(f"/proc/{pid}/task"))
    sockets = max(next((text for text in listed if text), b"").count(b"\n") - 1, 0)  # below a line of titles; one network for all
    own = {b"%d" % pid for pid in processes}
    locks = sum(1 for line in _read("/proc/locks").splitlines() if line.split()[4:5] and line.split()[4] in own)
    return held + len(pipes) * _PIPE + sockets * _SOCKET + locks * _LOCK


def _open_files(pid: int) -> list[os.stat_result]:
    """Of all its threads: each may have files of its own, and one that has ended shows none."""
    found = []
    for thread in _names(f"/proc/{pid}/task"):
        for name in _names(f"/proc/{pid}/task/{thread}/fd"):
            with contextlib.suppress(OSError):  # it was closed
                found.append(os.stat(f"/proc/{pid}/task/{thread}/fd/{name}"))
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_READ)
    except OSError:
        return b""
