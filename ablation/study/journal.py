"""The journal: an append-only file of events, one JSON object a line, each chained to the line before it.

It is the only place of a run that holds times. Every event has `seq`, `time` (UTC with offset), `event`, `plan` (the
canonical digest), `prev` and `sha256` (see `ablation.chain`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ablation.chain import Head, append_line, chained_line, cut_torn_tail
from ablation.errors import IntegrityError
from ablation.files import disk_errors, sha256_bytes, sync_folder
from ablation.rollouts.journal_chain import read_journal_chain


class Journal:
    """The open journal of a run. One process writes it (see `runlock`); every event is synced before `append` returns."""

    def __init__(self, path: Path, plan_digest: str) -> None:
        self.path = path
        self.plan_digest = plan_digest
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.torn = cut_torn_tail(path)
        chain = read_journal_chain(path)
        for event in chain.records:
            if event.get("plan") != plan_digest:
                raise IntegrityError(
                    f"{path}:{event['seq'] + 1}: belongs to plan {str(event.get('plan'))[:12]}, not to {plan_digest[:12]}",
                    hint="This is the run folder of another plan: choose another one with --run.",
                )
        self.events = chain.records
        """Every event so far, oldest first."""
        self._last = chain.head.sha256
        self.run = chain.digests[0] if chain.digests else None
        """Digest of the first line: what the ledger knows the run by. None before there is one."""
        with disk_errors(path):
            self._handle = open(path, "ab", buffering=0)  # noqa: SIM115 - unbuffered: a failed write must not be tried again at close
            sync_folder(path.parent)

    @property
    def head(self) -> Head:
        return Head(len(self.events), self._last)

    def append(self, event: str, **data: Any) -> None:
        """Write one event durably."""
        record = {
            "seq": len(self.events),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            "plan": self.plan_digest,
            **data,
        }
        line = chained_line(record, self._last)
        append_line(self.path, self._handle, line)
        self.events.append(record)
        self._last = sha256_bytes(line)
        self.run = self.run or self._last

    def close(self) -> None:
        self._handle.close()
