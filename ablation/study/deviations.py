"""Keeping a run's copy of the plan's deviations in step, with an event in the journal for each."""

from __future__ import annotations

from pathlib import Path

from ablation.files import write_bytes
from ablation.plan.deviations import Deviation, check_continues, deviations_path, read_deviations
from ablation.plan.lock import LockedPlan
from ablation.rollouts.folder import RunFolder
from ablation.study.journal import Journal


def known_deviations(locked: LockedPlan, root: Path) -> list[Deviation]:
    """Those beside the plan; the run's own copy where it is judged by its own copy of the plan."""
    run = RunFolder(root)
    copy = locked.path.resolve() == run.plan.resolve()
    return read_deviations(run.deviations if copy else deviations_path(locked.path), locked.digest)


def take_up_deviations(run: RunFolder, locked: LockedPlan, journal: Journal) -> list[Deviation]:
    """Copy the plan's deviations into the run and write an event for each new one; returns all of them.

    The caller holds the run's lock. Raises `IntegrityError` if the plan's file lacks one that the run has.
    """
    beside = deviations_path(locked.path)
    found, copied = read_deviations(beside, locked.digest), read_deviations(run.deviations, locked.digest)
    check_continues(copied, found, (run.deviations, beside))
    if found != copied:
        write_bytes(run.deviations, beside.read_bytes())
    told = sum(event["event"] == "deviation" for event in journal.events)
    for one in found[told:]:
        journal.append(
            "deviation", number=one.number, seen=one.seen, opens=list(one.opens), reason=one.reason, line_sha256=one.sha256
        )
    return found
