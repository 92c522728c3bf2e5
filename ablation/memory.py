"""How much memory this machine has left, and what this process may take of it."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from ablation.errors import UsageError

LEAST = 4 << 30
"""A process may always take so much: its packages reserve more than they use."""
NEEDED = 1 << 30
"""With less than this its packages fail while they are loaded, or call a sound file damaged; with half of it on some days."""


def free_bytes() -> int | None:
    """Bytes that are free on this machine, or that this process's control group leaves of it; None if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
    if kilobytes is None:
        return None
    limited = cgroup_free()
    return kilobytes * 1024 if limited is None else min(limited, kilobytes * 1024)


def cgroup_free(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that this process's control group may still take; None without a limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            most, now = (root / limit).read_text().strip(), int((root / used).read_text())
        except (OSError, ValueError):
            continue
        if most.isdigit() and int(most) < 2**60:  # the older kind writes a huge number for no limit
            return max(0, int(most) - now)
    return None


def refuse_too_little() -> None:
    """Raise `UsageError` if whoever started this process leaves it less than its packages need."""
    limits = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    allowed = min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=NEEDED)
    if allowed < NEEDED:
        raise UsageError(
            f"a process may take {allowed >> 20} MiB here, ablation needs {NEEDED >> 20}",
            hint="Raise the limit: `ulimit -v unlimited`, or the job's memory.",
        )


def bound_memory() -> None:
    """Let this process, and each child, take half of what is free now and no more.

    A file that was made to fill the memory then ends in a `MemoryError`, not in the end of other programs.
    """
    free = free_bytes()
    if free is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        with contextlib.suppress(OSError, ValueError):  # a lower one is set already
            resource.setrlimit(resource.RLIMIT_DATA, (max(free // 2, LEAST), hard))
