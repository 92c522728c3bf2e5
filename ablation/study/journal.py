"""The journal: an append-only file of events, one JSON object a line, each chained to the line before it.

It is the only place of a run that holds times. Every event has `seq`, `time` (UTC with offset), `event`, `plan` (the
canonical digest) and `prev` (SHA-256 of the line before, 64 zeros for the first).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ablation.errors import IntegrityError
from ablation.files import disk_errors, sha256_bytes, sync_folder

GENESIS = "0" * 64


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Every event, after checking that the chain holds; a torn last line (a killed writer) is not an event.

    Raises IntegrityError naming the line that was edited, dropped, repeated or moved.
    """
    if not path.exists():
        return []
    whole, _ = _split_torn_tail(path.read_bytes())
    events, previous = [], GENESIS
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            event = json.loads(line)
            sequence, prev = event["seq"], event["prev"]
        except (ValueError, KeyError, TypeError):
            raise IntegrityError(f"{path}:{number}: is not an event of a journal") from None
        if sequence != number - 1 or prev != previous:
            raise IntegrityError(
                f"{path}:{number}: the chain of events is broken here: a line was edited, removed or moved",
                hint="A journal is only ever appended to. Take it back from a copy; nothing of it can be trusted as it is.",
            )
        events.append(event)
        previous = sha256_bytes(line)
    return events


def _split_torn_tail(data: bytes) -> tuple[bytes, bytes]:
    """(complete lines, what a killed writer left of the last one)."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


class Journal:
    """The open journal of a run. One process writes it (see `runlock`); every event is synced before `append` returns."""

    def __init__(self, path: Path, plan_digest: str) -> None:
        self.path = path
        self.plan_digest = plan_digest
        self.torn: Path | None = None
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._cut_torn_tail()
        events = read_journal(path)
        for event in events:
            if event.get("plan") != plan_digest:
                raise IntegrityError(
                    f"{path}:{event['seq'] + 1}: belongs to plan {str(event.get('plan'))[:12]}, not to {plan_digest[:12]}",
                    hint="This is the run folder of another plan: choose another one with --run.",
                )
        self.count = len(events)
        lines = path.read_bytes().splitlines() if path.exists() else []
        self.head = sha256_bytes(lines[-1]) if lines else GENESIS
        with disk_errors(path):
            self._handle = open(path, "ab", buffering=0)  # noqa: SIM115 - unbuffered: a failed write must not be tried again at close
            sync_folder(path.parent)

    def append(self, event: str, **data: Any) -> None:
        """Write one event durably."""
        record = {
            "seq": self.count,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            "plan": self.plan_digest,
            "prev": self.head,
            **data,
        }
        line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
        with disk_errors(self.path):
            start = os.fstat(self._handle.fileno()).st_size
            try:
                if self._handle.write(line + b"\n") != len(line) + 1:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._handle.fileno())
            except OSError:
                self._forget_from(start)
                raise
        self.count += 1
        self.head = sha256_bytes(line)

    def close(self) -> None:
        self._handle.close()

    def _forget_from(self, start: int) -> None:
        """A full disk may have taken half a line: take it back, so that the next append does not fuse with it."""
        with contextlib.suppress(OSError):  # then the next open cuts it off as a torn tail
            os.ftruncate(self._handle.fileno(), start)

    def _cut_torn_tail(self) -> None:
        if not self.path.exists():
            return
        whole, torn = _split_torn_tail(self.path.read_bytes())
        if torn:
            self.torn = self.path.with_name(f"{self.path.name}.torn-{len(whole)}")
            self.torn.write_bytes(torn)
            with open(self.path, "r+b") as handle:
                handle.truncate(len(whole))
                os.fsync(handle.fileno())
