"""Folders that adapters are handed over in: in memory where that can be. What a killed process left the next one removes.

A folder is held by a lock on itself, which the kernel lets go of however its process ends. Whoever makes a folder removes those
of the same place that nobody holds. A lock is of one kernel, so the name has a few digits of the kernel's boot: a folder from
another machine, in a place that several share, is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

RAM_DISK = Path("/dev/shm")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAME = re.compile(r"ablation-(adapter|server)-([0-9a-f]{8})-.+")
_TRIES = 100


class AdapterFolder:
    """A new folder, of this process until `remove`. Raises `OSError` if there can be none."""

    def __init__(self, kind: str, place: Path | None = None) -> None:
        """`kind`: `adapter` or `server`. `place`: where; None for memory, or the temporary folder without such a disk."""
        if place is None:
            place = RAM_DISK if RAM_DISK.is_dir() else Path(tempfile.gettempdir())
        _remove_left(place)
        prefix = f"ablation-{kind}-{_boot() or 'here'}-"
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            with contextlib.suppress(BlockingIOError, FileNotFoundError):  # another one took it for left, before it was held
                self._held = _hold(self.path)
                return
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(place))

    def remove(self) -> None:
        """Remove it with all that is in it. It may be gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def _hold(folder: Path) -> int | None:
    """A descriptor whose lock says that `folder` is somebody's; None on a file system without locks.

    Raises `BlockingIOError` if another one has the lock, `FileNotFoundError` if the folder is gone.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)  # whoever had the lock in between has removed it
    except (BlockingIOError, FileNotFoundError):
        os.close(opened)
        raise
    except OSError:
        os.close(opened)
        return None
    return opened


def _remove_left(place: Path) -> None:
    """Remove the folders in `place` that were made by this account since this machine started, and that nobody holds."""
    boot = _boot()
    if boot is None:
        return
    with contextlib.suppress(OSError), os.scandir(place) as found:
        names = [entry.name for entry in found if (name := _NAME.fullmatch(entry.name)) and name[2] == boot]
        for name in names:
            with contextlib.suppress(OSError):
                if os.lstat(place / name).st_uid != os.getuid():
                    continue
                held = _hold(place / name)
                if held is not None:
                    shutil.rmtree(place / name, ignore_errors=True)
                    os.close(held)


@cache
def _boot() -> str | None:
    """The first digits of this start of the machine; None if the system does not tell."""
    try:
        return _BOOT.read_text()[:8]
    except OSError:
        return None
