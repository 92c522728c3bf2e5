"""How much memory the processes of a sandbox hold together: limits of a process say nothing about sixteen of them."""

from __future__ import annotations

import os

_OWN = (b"RssAnon:", b"RssShmem:")
"""Lines of `/proc/PID/status`: private memory, and memory that processes share or that is a file in memory, in kB."""


def processes_of(namespace: int) -> list[int]:
    """Process ids, as seen from here, of all living processes in the PID namespace with this inode number."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}/ns/pid").st_ino == namespace and not _dead(name):
                    found.append(int(name))
            except OSError:  # it has ended, or belongs to somebody else
                continue
    return found


def _dead(pid: str) -> bool:
    """Whether it has ended and only waits to be collected."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] in b"ZX"


def resident_bytes(namespace: int) -> int:
    """Resident memory of those processes, without pages that come from files."""
    total = 0
    for pid in processes_of(namespace):
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith(_OWN))
        except (OSError, ValueError):
            continue
    return total << 10
