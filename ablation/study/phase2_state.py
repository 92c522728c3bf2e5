"""How far phase 2 of a run is, read from its folder alone."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablation.files import parse_json
from ablation.plan.deviations import Deviation, opened_by
from ablation.plan.lock import LockedPlan
from ablation.plan.phase2 import evaluation_sets
from ablation.rollouts.blind_record import UNSEALED, BlindFolder
from ablation.rollouts.comparisons import OPENED
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import read_journal
from ablation.rollouts.store import stage_is_begun, stage_is_complete
from ablation.study.phase_gates import GATE_OF

READ_SETS = ("held-out", "safety")
"""Sets whose answers are read blind."""


@dataclass(frozen=True)
class ComparisonState:
    """One model on one set."""

    set: str
    subject: str
    reference: str
    """Of the start's stage: "no", "partly" or "yes"."""
    rollouts: str
    """The same of the subject's."""
    finished: bool
    reused: str | None
    """The comparison that the reference was taken over from."""
    deviation: int | None
    """The one that opened the gate."""
    correct: dict[str, int] | None
    drifted: bool
    read: str | None
    """Of the blinded read, on sets that have one: "no", "sealed" or "unsealed"."""


@dataclass(frozen=True)
class SetState:
    """A set that the plan has."""

    name: str
    opened: int | None
    """The deviation that opens its gate, whatever the labels say."""
    comparisons: list[ComparisonState]


def phase2_state(locked: LockedPlan, root: Path, deviations: Sequence[Deviation]) -> list[SetState]:
    """Every set of the plan and what was compared on it; the run folder need not exist."""
    run = RunFolder(root)
    events = read_journal(run.journal) if run.journal.is_file() else []
    found = []
    for name in evaluation_sets(locked.plan):
        folder = run.evaluation_set(name)
        there = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        subjects = sorted(subject for subject in there if _is_model(subject, locked.plan.arms))
        opened = opened_by(deviations, GATE_OF[name])
        states = [_comparison(run, events, name, subject) for subject in subjects]
        found.append(SetState(name, None if opened is None else opened.number, states))
    return found


def _comparison(run: RunFolder, events: Sequence[dict], name: str, subject: str) -> ComparisonState:
    path = run.evaluation_result(name, subject)
    record = parse_json(path.read_bytes()) if path.is_file() else {}
    begun = [one for one in events if (one.get("event"), one.get("set"), one.get("subject")) == (OPENED, name, subject)]
    blind = BlindFolder(run, name, subject)
    read = None
    if name in READ_SETS:
        read = "unsealed" if blind.events(events, UNSEALED) else "sealed" if blind.sealing(events) else "no"
    return ComparisonState(
        name,
        subject,
        _presence(run.evaluated_reference(name, subject)),
        _presence(run.evaluated(name, subject)),
        bool(record),
        record.get("reused"),
        next((one["deviation"] for one in begun if one.get("deviation") is not None), None),
        record.get("correct"),
        any(one["flagged"] for one in record.get("drift", [])),
        read,
    )


def _is_model(subject: str, arms: Container[str]) -> bool:
    """Whether a folder is called as a comparison is, ARM@UPDATES: `N@03` is none, and no command takes it."""
    arm, _, updates = subject.partition("@")
    return arm in arms and re.fullmatch("[1-9][0-9]{0,5}", updates) is not None


def _presence(folder: Path) -> str:
    return "yes" if stage_is_complete(folder) else "partly" if stage_is_begun(folder) else "no"
