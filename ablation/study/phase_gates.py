"""What must be so before the problems of phase 2 are sampled, and how a deviation opens what is closed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablation.errors import AblationError, GateError
from ablation.plan.deviations import Deviation, opened_by
from ablation.plan.lock import LockedPlan
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.store import stage_is_complete
from ablation.study.evaluate_subject import Subject
from ablation.study.extension import deviate_command
from ablation.verdict.model import INCOMPLETE, REPLICATED, WIN_VERIFIED
from ablation.verdict.phase2 import section_label
from ablation.verdict.run import headline_of
from ablation.verdict.selection import selected_subject

GATE_OF = {
    "held-out": "held-out",
    "never-used": "never-used",
    "selection": "selection",
    "main": "release",
    "agent": "release",
    "safety": "release",
}
"""Set -> the gate that a deviation names to have it sampled anyway."""


def check_phase_gate(
    locked: LockedPlan, root: Path, deviations: Sequence[Deviation], set_name: str, subject: Subject
) -> Deviation | None:
    """The deviation under which `subject` is sampled on the set; None if the plan itself allows it.

    Raises `GateError` if neither does, with the command that writes such a deviation.
    """
    opened = opened_by(deviations, GATE_OF[set_name])
    if opened is not None:
        return opened
    closed = _why_closed(locked, root, set_name, subject)
    if closed is None:
        return None
    command = deviate_command(locked, root, GATE_OF[set_name])
    raise GateError(f"{root}: {closed}", hint=f"Sampling it anyway is a deviation, written before it is sampled: {command}.")


def gate_state(locked: LockedPlan, root: Path, set_name: str, subject: Subject) -> str | None:
    """Why the gate of the set is closed to `subject` as things are, deviations aside; None if it is open."""
    try:
        return _why_closed(locked, root, set_name, subject)
    except AblationError as error:
        return error.message


def _why_closed(locked: LockedPlan, root: Path, set_name: str, subject: Subject) -> str | None:
    if set_name == "never-used":
        label = section_label(root, locked, "held_out", subject.name)
        if label == WIN_VERIFIED:
            return None
        return f"never-used problems are for a model with {WIN_VERIFIED} on the held-out ones; {subject.name} has {label}"
    label = replication_label(locked, root)
    if label != REPLICATED:
        return f"phase 2 needs {REPLICATED}; the verdict on this run is {label}"
    if GATE_OF[set_name] == "release" and locked.plan.extension is not None and locked.plan.extension.selection is not None:
        chosen = selected_subject(root, locked)
        if chosen != subject.name:
            return f"a release is tried with the checkpoint that was selected; {f'that is {chosen}' if chosen else 'none was'}"
    return None


def replication_label(locked: LockedPlan, root: Path) -> str:
    """The bare label of the run as `ablation verdict` shows it: without all readouts it is INCOMPLETE."""
    run, family = RunFolder(root), locked.plan.main_family
    ended = (stage_is_complete(run.readout(family, arm)) or run.stopped(family, arm).is_file() for arm in locked.plan.arms)
    return headline_of(root, locked).label if all(ended) else INCOMPLETE
