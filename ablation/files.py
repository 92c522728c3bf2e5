"""Writing that survives a kill, and digests of what was written.

Every file appears at its final name complete or not at all: it is written to a unique temporary name in the same
folder, flushed, synced and renamed. A folder is built the same way. Errors of the disk become one clear message.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ablation.errors import AblationError, IntegrityError, UsageError

TEMPORARY_PREFIX = ".partial-"
_TOGETHER_PREFIX = f"{TEMPORARY_PREFIX}set-"
MARKER = "complete.json"


class DiskError(AblationError):
    """The disk refused a write; nothing that was there before has been touched."""


@contextmanager
def disk_errors(path: Path):
    """Turn an `OSError` while writing `path` into a `DiskError` that names it."""
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"{path}: could not be written: {error.strerror or error}",
            hint="Nothing was lost: free some space or fix the permissions and run the same command again.",
        ) from error


_OURS = ("/dev/null", "/dev/tty", "/dev/urandom", "/dev/stdin", "/dev/fd/")
"""What a user or the system may name: it is no file of somebody else's folder."""
_ENDLESS = ("/proc/kmsg", "/sys/kernel/debug/", "/sys/kernel/tracing/", "/sys/kernel/security/")
"""The kernel has files here whose reader waits for more; they say that they are plain ones, of no bytes."""
_watch = {"hooked": False, "only_plain": False}


@contextmanager
def only_plain_files() -> Iterator[None]:
    """Inside, nothing opens a pipe or a device to read it: `OSError` names it. Such a file, anywhere beside what is judged (a
    ledger, a model, a signature), could hold up its reader for ever."""
    if not _watch["hooked"]:  # a hook stays for good
        sys.addaudithook(_refuse_odd)
    _watch.update(hooked=True, only_plain=True)
    try:
        yield
    finally:
        _watch["only_plain"] = False


def _refuse_odd(event: str, arguments: tuple) -> None:
    if event != "open" or not _watch["only_plain"]:
        return
    path, _, flags = arguments
    if not isinstance(path, str | bytes) or flags & (os.O_WRONLY | os.O_RDWR | os.O_NONBLOCK):
        return
    if os.fsdecode(path).startswith(_OURS):
        return
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return
    endless = not found.st_size and os.path.realpath(os.fsdecode(path)).startswith(_ENDLESS)
    if endless or any(kind(found.st_mode) for kind in (stat.S_ISFIFO, stat.S_ISCHR, stat.S_ISBLK)):
        raise OSError(errno.EINVAL, "is a pipe or a device, no file", path)


def lock_file(handle: IO[bytes] | int, path: Path, how: int) -> None:
    """`fcntl.flock`. Raises `UsageError` where the file system has no locks, `BlockingIOError` as that does."""
    try:
        fcntl.flock(handle, how)
    except BlockingIOError:
        raise
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be locked: {error.strerror}",
            hint="Mount its file system with locks (NFS: its lock service, or the option local_lock=flock), or use a local disk.",
        ) from None


CRLF_HINT = (
    "Git changed its line ends. Put `* -text` into .gitattributes, then: "
    "git config core.autocrlf false && git rm -rq --cached . && git reset -q --hard (commit your own changes first)."
)
"""For a file that must be byte for byte what was written."""


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_with(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, sync it and rename it to `path`."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o644)
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically and durably."""
    write_with(path, lambda temporary: temporary.write_bytes(data))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON with sorted keys, so that equal values give equal bytes."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """`value` as readable JSON bytes with sorted keys; a NaN or infinity is a bug of ours."""
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def parse_json(data: bytes | str, *, names_once: bool = False) -> Any:
    """The value of JSON that a program wrote. Raises `ValueError` for what is none, and for what only breaks whoever calculates
    with it: NaN, infinities, numbers beyond 64 bits, nesting beyond what can be read.

    `names_once`: also for an object that has a name twice, of which readers see one or the other.
    """
    once = _names_once if names_once else None
    try:
        return json.loads(
            data, parse_constant=_refused_number, parse_int=_whole_number, parse_float=_finite_number, object_pairs_hook=once
        )
    except RecursionError:
        raise ValueError("it is nested too deep to be read") from None


def _names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _refused_number(text: str) -> float:
    raise ValueError(f"{text[:40]} is no number that can be read")


def _whole_number(text: str) -> int:
    value = int(text) if len(text) <= 20 else 2**64
    return value if -(2**63) <= value < 2**64 else int(_refused_number(text))


def _finite_number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refused_number(text)


def write_folder(path: Path, fill: Callable[[Path], None], *, tell: Callable[[str], None] | None = None) -> None:
    """Let `fill` build a folder, mark it with the size and digest of every file, and rename it to `path`.

    `tell` is given the SHA-256 of the marker, when all is on disk and before the folder appears at `path`.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=path.parent))
        try:
            fill(temporary)
            write_json(temporary / MARKER, {"files": folder_files(temporary)})
            for entry in temporary.rglob("*"):
                if entry.is_dir():
                    entry.chmod(0o755)
                    sync_folder(entry)
                    continue
                entry.chmod(0o644)  # some writers make files that only their owner can read
                with entry.open("rb") as written:
                    os.fsync(written.fileno())
            sync_folder(temporary)
            temporary.chmod(0o755)
            if tell is not None:
                tell(sha256_file(temporary / MARKER))
            if path.exists():  # unmarked, or it would not be written again
                shutil.rmtree(path)
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def write_together(folder: Path, files: Mapping[str, bytes], earlier: Iterable[str] = ()) -> None:
    """Put `files` (place in `folder` -> content) there, instead of those and of the `earlier` ones; whatever else is there stays.

    Nobody who looks finds some of both. All are written under temporary names, beside their places, which may be on several
    disks; then what was there goes, the last of `files` first and the first one last; then the new ones come in their order. A
    full disk leaves what was there, a kill while they move a part of one set: the first file is there while any is, and the last
    one only if all are.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            lock_file(handle, folder, fcntl.LOCK_EX)  # of two writers one waits
            parents = dict.fromkeys((folder, *((folder / name).parent for name in files)))
            temporary: dict[Path, Path] = {}
            try:
                for parent in parents:
                    parent.mkdir(parents=True, exist_ok=True)
                    for left in parent.glob(f"{_TOGETHER_PREFIX}*"):  # of a killed writer; the lock is held, so none is at work
                        shutil.rmtree(left, ignore_errors=True)
                    temporary[parent] = Path(tempfile.mkdtemp(prefix=_TOGETHER_PREFIX, dir=parent))
                _replace_together(folder, temporary, files, earlier)
            finally:
                for path in temporary.values():
                    shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(handle)


def _replace_together(folder: Path, temporary: Mapping[Path, Path], files: Mapping[str, bytes], earlier: Iterable[str]) -> None:
    """`temporary`: folder that files come to -> where they are written until all are."""
    earlier = list(earlier)
    for name in (*files, *earlier):
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            raise IsADirectoryError(errno.EISDIR, f"{name} is a folder")
    written = {name: temporary[(folder / name).parent] / str(number) for number, name in enumerate(files)}
    for name, path in written.items():
        path.write_bytes(files[name])
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
        path.chmod(0o644)
    first, *others = files
    for name in (*reversed(others), *(name for name in earlier if name not in files), first):
        (folder / name).unlink(missing_ok=True)
    for parent in temporary:  # a power failure must not bring some of them back beside new ones
        sync_folder(parent)
    for name, path in written.items():
        os.replace(path, folder / name)
    for parent in temporary:
        sync_folder(parent)


def folder_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Name -> size and SHA-256 of every file in `folder` (its marker left out)."""
    return {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MARKER and not file.name.startswith(TEMPORARY_PREFIX)
    }


def folder_is_complete(folder: Path) -> bool:
    """True if `folder` has a marker and every file that it names has that size and digest.

    Raises `IntegrityError` naming a file that somebody else put into a complete folder.
    """
    try:
        marked = parse_json((folder / MARKER).read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    there = folder_files(folder)
    if not marked or marked != {name: one for name, one in there.items() if name in marked}:
        return False
    for name in there.keys() - marked.keys():
        raise IntegrityError(f"{folder / name}: is in a folder that was saved without it", hint="Remove this file, then go on.")
    return True


def remove_partial(folder: Path) -> list[Path]:
    """Remove what a killed writer left below `folder`; returns what was removed."""
    if not folder.is_dir():
        return []
    leftovers = sorted(folder.rglob(f"{TEMPORARY_PREFIX}*"))
    for path in leftovers:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return leftovers


def sha256_bytes(data: bytes) -> str:
    """Hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_path(path: Path) -> str:
    """Hex SHA-256 of a file, or of a folder: the digest of the sorted lines `name NUL digest NL` of its files."""
    if path.is_file():
        return sha256_file(path)
    lines = [f"{name}\0{entry['sha256']}\n" for name, entry in sorted(folder_files(path).items())]
    return sha256_bytes("".join(lines).encode())
