"""Files that are only ever appended to: one JSON object a line, each chained to the line before it.

A line ends with `"prev": ..., "sha256": ...}`. `prev` is the SHA-256 of the line before it (64 zeros for the first), so no line
can be edited, removed or moved without the next one saying so. `sha256` is over the line without that field, so that the
last line, which has no next one, is guarded, too. Neither stops somebody who writes the whole file again, or cuts its
tail off: that is found by whoever kept the number of lines and the digest of the last one, the *head*.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ablation.errors import IntegrityError, UsageError
from ablation.files import CRLF_HINT, disk_errors, sha256_bytes

GENESIS = "0" * 64
_SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"\}\Z')


@dataclass(frozen=True)
class Head:
    """How many lines a chain has, and the SHA-256 of the last one: together they stand for the whole file."""

    length: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.length}:{self.sha256}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head that `str` wrote. Raises `UsageError`."""
        found = re.fullmatch(r"(\d{1,15}):([0-9a-f]{64})", text.strip())
        if not found:
            raise UsageError(f"`{text}` is not the head of a journal", hint="`ablation journal head` prints one: LENGTH:SHA256.")
        return cls(int(found[1]), found[2])


@dataclass(frozen=True)
class Chain:
    """A chain that holds."""

    path: Path
    records: list[dict[str, Any]]
    digests: list[str]
    """SHA-256 of each line."""
    torn: bytes = b""
    """What follows the last whole line: left by a writer that was killed or is at work now, or by a change of the last byte."""

    @property
    def head(self) -> Head:
        return Head(len(self.digests), self.digests[-1] if self.digests else GENESIS)

    def digest_at(self, length: int) -> str | None:
        """What the head's digest was when the chain had `length` lines; None if it never had as many."""
        if length > len(self.digests):
            return None
        return self.digests[length - 1] if length else GENESIS

    def check_head(self, kept: Head, keeper: str) -> None:
        """Raise `IntegrityError` if this is not a continuation of the chain whose head `keeper` kept."""
        now = self.digest_at(kept.length)
        if now is None:
            raise IntegrityError(
                f"{self.path}: has {len(self.digests)} lines, but {keeper} was written when it had {kept.length}: "
                "its tail was cut off",
                hint="Put the file back from a copy; nothing that depends on it can be trusted as it is.",
            )
        if now != kept.sha256:
            raise IntegrityError(
                f"{self.path}: line {kept.length} is not the one that {keeper} names: the file was written again since",
                hint="Put the file back from a copy; nothing that depends on it can be trusted as it is.",
            )


def read_chain(path: Path, *, counter: str, first: int, what: str) -> Chain:
    """The chain in `path`, whose lines count from `first` in the field `counter`; empty if there is no such file.

    Raises `IntegrityError` naming the line that was edited, dropped, repeated or moved. `what` is the kind of file.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Chain(path, [], [])
    except OSError as error:
        raise IntegrityError(f"{path}: cannot be read: {error.strerror}") from error
    whole, torn = split_torn_tail(data)
    records: list[dict[str, Any]] = []
    digests: list[str] = []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        record = _opened(line)
        if record is None and line.endswith(b"\r") and _opened(line[:-1]) is not None:
            raise IntegrityError(f"{path}: its lines end with CRLF, not as they were written", hint=CRLF_HINT)
        if record is None:
            raise _broken(path, number, f"is not a line of a {what} as it was written", what)
        if record.get(counter) != number - 1 + first or record.get("prev") != (digests[-1] if digests else GENESIS):
            raise _broken(path, number, "the chain is broken here: a line was edited, removed or moved", what)
        records.append(record)
        digests.append(sha256_bytes(line))
    return Chain(path, records, digests, torn)


def chained_line(record: dict[str, Any], prev: str) -> bytes:
    """`record` as the line that follows the line with the digest `prev`, without its line end."""
    body = json.dumps({**record, "prev": prev}, ensure_ascii=False, allow_nan=False).encode()
    return body[:-1] + f', "sha256": "{sha256_bytes(body)}"}}'.encode()


def append_line(path: Path, handle: BinaryIO, line: bytes) -> None:
    """Write `line` durably at the end of the unbuffered `handle`, whole or not at all."""
    with disk_errors(path):
        start = os.fstat(handle.fileno()).st_size
        try:
            if handle.write(line + b"\n") != len(line) + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle.fileno())
        except OSError:
            # A full disk may have taken half a line: take it back, so that the next append does not fuse with it.
            with contextlib.suppress(OSError):
                os.ftruncate(handle.fileno(), start)
            raise


def split_torn_tail(data: bytes) -> tuple[bytes, bytes]:
    """(complete lines, what a killed writer left of the last one)."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def cut_torn_tail(path: Path) -> Path | None:
    """Take off what a killed writer left of the last line, so that the next append does not fuse with it.

    It is kept beside the file, under the path that is returned; None if every line is whole. Raises `OSError`.
    """
    if not path.exists():
        return None
    whole, torn = split_torn_tail(path.read_bytes())
    if not torn:
        return None
    kept = path.with_name(f"{path.name}.torn-{len(whole)}")
    kept.write_bytes(torn)
    with open(path, "r+b") as handle:
        handle.truncate(len(whole))
        os.fsync(handle.fileno())
    return kept


def _opened(line: bytes) -> dict[str, Any] | None:
    """The record of a line whose own digest holds."""
    seal = _SEAL.search(line)
    if seal is None or sha256_bytes(line[: seal.start()] + b"}").encode() != seal[1]:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _broken(path: Path, number: int, problem: str, what: str) -> IntegrityError:
    return IntegrityError(
        f"{path}:{number}: {problem}",
        hint=f"A {what} is only ever appended to. Take it back from a copy; nothing of it can be trusted as it is.",
    )
