"""Deviations: what is done otherwise than the locked plan says, written down before it is done, and never edited.

They lie in `NAME.deviations.jsonl` beside the plan, a chained file (see `ablation.chain`). Each says what had been seen of the
results by then, and which gate it opens. An amendment that was made before anything was seen is one with `seen: nothing`.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ablation.chain import Chain, Head, append_line, chained_line, read_chain
from ablation.errors import IntegrityError, UsageError
from ablation.files import disk_errors, lock_file, sha256_bytes, sync_folder
from ablation.plan.lock import LockedPlan
from ablation.plan.provenance import whoami

SEEN = ("nothing", "progress", "results")
"""What had been seen: no rollout of the run; rollouts or updates, but no readout; a readout, an arm's end or a verdict."""

GATES = {
    "replication": "an arm that the plan does not replicate may run in the second family",
    "extension": "an arm may be extended without REPLICATED, or although it is not the one that the plan extends",
    "extension-pause:ARM@UPDATE": "the extension of ARM may go on past the check after UPDATE, which paused it",
    "engine": "the run may go on with another engine than the one that it began with",
    "held-out": "held-out problems may be sampled without REPLICATED",
    "never-used": "never-used problems may be sampled without WIN_VERIFIED on the held-out ones",
    "selection": "checkpoints may be compared on the selection set without REPLICATED",
    "release": "a release may be tried without REPLICATED, or with a checkpoint that was not selected",
    "same-day": "the two models of a comparison may be sampled further apart than evaluation.same_day_hours",
    "blind-rater:SET/ARM@UPDATES/RATER": "the read is opened without the ratings that RATER, who began it, still owes",
}
"""Gate -> what a deviation that names it allows. A name with a subject opens the gate for that subject alone."""
PAUSE, LEFT = "extension-pause", "blind-rater"

_PLAN_FIELDS = {"number": int, "time": str, "plan": str, "reason": str, "seen": str, "opens": list, "by": str}


@dataclass(frozen=True)
class Deviation:
    """One line of a deviations file."""

    number: int
    """1, 2, ... in the order of writing."""
    time: str
    """UTC, ISO 8601 with offset, by the clock of the machine that wrote it."""
    reason: str
    seen: str
    opens: tuple[str, ...]
    by: str
    journal: Head | None
    """The run's journal as it was then; None if there was no run."""
    sha256: str
    """Of the line."""
    run: Mapping[str, str] | None = None
    """Whose journal: the `folder`'s name, and the digest of its `first` line. None in a line of an earlier version."""

    def is_beside(self, folder: str, first: str | None) -> bool:
        """Whether it kept the head of the journal in `folder`, whose first line has the digest `first`. A plan may have several
        runs, one for each backend; a run that was begun anew in its folder, or was moved, is still meant.
        """
        return self.run is None or folder == self.run.get("folder") or first == self.run.get("first")

    def as_json(self) -> dict[str, Any]:
        content = {"number": self.number, "time": self.time, "reason": self.reason, "seen": self.seen, "by": self.by}
        return content | {"opens": list(self.opens), "sha256": self.sha256}

    def in_words(self) -> str:
        """One sentence for a page."""
        opens = f"; opens {', '.join(self.opens)}" if self.opens else ""
        return f"deviation {self.number} ({self.time}, {self.by}; {self.seen} seen{opens}): {self.reason}"


def deviations_path(plan_path: Path) -> Path:
    """`plans/NAME.yaml` -> `plans/NAME.deviations.jsonl`."""
    return Path(plan_path).with_suffix(".deviations.jsonl")


def read_deviations(path: Path, plan_digest: str) -> list[Deviation]:
    """The deviations in the file `path`; none if it is not there.

    Raises `IntegrityError` if it was edited, reordered or cut inside, or belongs to another plan.
    """
    return [_deviation(path, record, digest, plan_digest) for record, digest in _whole(path)]


def record_deviation(
    locked: LockedPlan,
    *,
    reason: str,
    seen: str,
    opens: Sequence[str] = (),
    journal: Head | None = None,
    run: Mapping[str, str] | None = None,
) -> Deviation:
    """Append a deviation from `locked` to its file. `journal` is the head of that of `run`, see `Deviation.run`.

    Raises `UsageError`, or `IntegrityError` if the file was touched.
    """
    reason = " ".join(reason.split())
    if len(reason) < 10:
        raise UsageError("--reason: say in a sentence what is done otherwise, and why")
    if seen not in SEEN:
        raise UsageError(f"--seen: `{seen}` is not one of {', '.join(SEEN)}")
    for gate in opens:
        _check_gate_name(locked, gate)
    path = deviations_path(locked.path)
    with disk_errors(path):
        handle = open(path, "ab", buffering=0)  # noqa: SIM115 - closed below
    with handle:
        lock_file(handle, path, fcntl.LOCK_EX)  # two people may write at once
        known = read_deviations(path, locked.digest)
        record = {
            "number": len(known) + 1,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "plan": locked.digest,
            "reason": reason,
            "seen": seen,
            "opens": list(dict.fromkeys(opens)),
            "by": whoami(locked.path),
            "journal": None if journal is None else str(journal),
        }
        record |= {"run": dict(run)} if journal is not None and run is not None else {}
        line = chained_line(record, _read(path).head.sha256)
        append_line(path, handle, line)
        sync_folder(path.parent)
    return _deviation(path, record, sha256_bytes(line), locked.digest)


def check_continues(earlier: Sequence[Deviation], later: Sequence[Deviation], where: tuple[Path, Path]) -> None:
    """Raise `IntegrityError` unless `later` (in the file `where[1]`) begins with all of `earlier` (in `where[0]`)."""
    for index, one in enumerate(earlier):
        if index >= len(later):
            raise IntegrityError(
                f"{where[1]}: has {len(later)} deviations, but {where[0]} has {len(earlier)}: its tail was cut off",
                hint="Put the file back: deviations are only ever added.",
            )
        if later[index].sha256 != one.sha256:
            raise IntegrityError(
                f"{where[1]}:{index + 1}: is not deviation {one.number} as {where[0]} has it",
                hint="Put the file back: deviations are never edited.",
            )


def opened_by(deviations: Sequence[Deviation], gate: str) -> Deviation | None:
    """The first deviation that opens `gate` (with its subject, where it has one: see `pause_gate`)."""
    assert gate in GATES or gate.startswith((f"{PAUSE}:", f"{LEFT}:")), gate
    return next((one for one in deviations if gate in one.opens), None)


def pause_gate(arm: str, update: int) -> str:
    """The gate behind the check of `arm` after `update`, once it has paused the extension."""
    return f"{PAUSE}:{arm}@{update}"


def rater_gate(name: str, subject: str, rater: str) -> str:
    """What has to be opened so that the read of `subject` on the set `name` no longer waits for `rater`."""
    return f"{LEFT}:{name}/{subject}/{rater}"


def decorated(label: str, deviations: Sequence[Deviation], marks: Sequence[str] = ()) -> str:
    """`NOT_REPLICATED (deviation 1)`, `STABLE (deviations 1, 2; imported)`; the label alone without any deviation or mark.

    `marks` begin with `imported`: see `rollouts.imported`.
    """
    if not deviations:
        return f"{label} ({'; '.join(marks)})" if marks else label
    numbers = ", ".join(str(one.number) for one in deviations)
    first = f"deviation{'s' if len(deviations) > 1 else ''} {numbers}"
    return f"{label} ({'; '.join([first, *marks])})"


def bare(label: str) -> str:
    """The label without what `decorated` added."""
    return re.sub(r" \((?:deviations? \d|imported|redone|unread|one of \d|not allowed|undeclared deviation)[^()]*\)\Z", "", label)


def _check_gate_name(locked: LockedPlan, gate: str) -> None:
    """Raise `UsageError` unless `gate` is one, and is about something that the plan has."""
    name, _, subject = gate.partition(":")
    if name == LEFT:
        read = re.fullmatch(
            r"(held-out|safety)/([A-Za-z0-9][A-Za-z0-9_-]*)@[1-9][0-9]{0,5}/[A-Za-z0-9][A-Za-z0-9_-]{0,39}", subject
        )
        if read is None or read[2] not in locked.plan.arms:
            raise UsageError(
                f"--opens: found `{gate}`; it is {LEFT}:SET/ARM@UPDATES/RATER, for instance {LEFT}:held-out/"
                f"{list(locked.plan.arms)[-1]}@{locked.plan.training.updates}/ann"
            )
        return
    if name != PAUSE:
        if gate not in GATES:
            raise UsageError(f"--opens: there is no gate `{gate}`; there are: {', '.join(GATES)}")
        return
    checks = locked.plan.extension.checks if locked.plan.extension else []
    if subject not in {f"{arm}@{update}" for arm in locked.plan.arms for update in checks}:
        which = f"which has checks after {', '.join(map(str, checks))}" if checks else "which has no checks"
        raise UsageError(f"--opens: found `{gate}`; it is {PAUSE}:ARM@UPDATE for an arm and a check of the plan, {which}")


def _read(path: Path) -> Chain:
    return read_chain(path, counter="number", first=1, what="file of deviations")


def _whole(path: Path) -> list[tuple[dict[str, Any], str]]:
    chain = _read(path)
    if chain.torn:
        raise IntegrityError(
            f"{path}: its last line is not whole: it was edited or cut",
            hint="Put the file back: deviations are only ever added.",
        )
    return list(zip(chain.records, chain.digests, strict=True))


def _deviation(path: Path, record: dict[str, Any], digest: str, plan_digest: str) -> Deviation:
    number = record.get("number")
    for name, kind in _PLAN_FIELDS.items():
        if not isinstance(record.get(name), kind):
            raise IntegrityError(f"{path}:{number}: `{name}` is missing or of the wrong type")
    if record["plan"] != plan_digest:
        raise IntegrityError(
            f"{path}:{number}: is a deviation from plan {record['plan'][:12]}, not from {plan_digest[:12]}",
            hint="A file of deviations belongs to one locked plan; it cannot be taken along to another.",
        )
    if record["seen"] not in SEEN:
        raise IntegrityError(f"{path}:{number}: `seen` is {record['seen']!r}, not one of {', '.join(SEEN)}")
    journal = record.get("journal")
    return Deviation(
        number=record["number"],
        time=record["time"],
        reason=record["reason"],
        seen=record["seen"],
        opens=tuple(record["opens"]),
        by=record["by"],
        journal=None if journal is None else Head.parse(str(journal)),
        sha256=digest,
        run=record["run"] if isinstance(record.get("run"), dict) else None,
    )
