"""Files of chained lines (journal, deviations, ledger), read by this audit's own parser.

A line is a JSON object that ends with `"prev"`, the SHA-256 of the line before it, and `"sha256"`, that of the line without this
last field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation.audit.findings import Findings
from ablation.audit.locked import sha256

SEAL = ', "sha256": "'


@dataclass
class Lines:
    """The lines of one file, as far as they can be read."""

    path: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)

    def head_at(self, length: int) -> str | None:
        """SHA-256 of line `length`, 64 zeros for none, None if the file never had as many."""
        return "0" * 64 if length == 0 else self.digests[length - 1] if length <= len(self.digests) else None


def read_lines(path: Path, counter: str, first: int, found: Findings, what: str) -> Lines:
    """Every line of `path`, each break of its chain named with its line number."""
    lines = Lines(path)
    if not path.is_file():
        return lines
    data = path.read_bytes()
    *whole, rest = data.split(b"\n")
    if rest:
        found.note(f"{path}: its last {len(rest)} bytes are no whole line (a writer at work or killed, or the end was changed)")
    before = "0" * 64
    for number, raw in enumerate(whole, start=1):
        record = _record(raw)
        if record is None:
            found.differ(f"{path}:{number}", f"is not a line of a {what} as it was written")
            record = {}
        elif record.get("prev") != before or record.get(counter) != first + number - 1:
            found.differ(f"{path}:{number}", "the chain is broken here: a line was edited, removed, repeated or moved")
        lines.records.append(record)
        before = sha256(raw)
        lines.digests.append(before)
    found.count("chained lines of journal, deviations and ledger", len(whole))
    return lines


def _record(raw: bytes) -> dict[str, Any] | None:
    try:
        text = raw.decode()
        body, seal, digest = text.rpartition(SEAL)
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not seal or not isinstance(record, dict) or digest != sha256((body + "}").encode()) + '"}':
        return None
    return record


def check_kept(lines: Lines, length: Any, digest: Any, keeper: str, found: Findings) -> None:
    """Whether the head that `keeper` remembers is one that this file had."""
    now = lines.head_at(length) if isinstance(length, int) and length >= 0 else None
    if now is None:
        found.differ(
            lines.path, f"has {len(lines.digests)} lines, but {keeper} was written when it had {length}: its tail was cut off"
        )
    elif now != digest:
        found.differ(lines.path, f"line {length} is not the one that {keeper} names: the file was written again since")
    found.count("heads of the journal that something kept")
