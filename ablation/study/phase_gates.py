"""What must be so before the problems of phase 2 are sampled, and how a deviation opens what is closed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ablation.errors import GateError, IncompleteError
from ablation.plan.deviations import Deviation, opened_by
from ablation.plan.lock import LockedPlan
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.store import stage_is_complete
from ablation.study.extension import deviate_command
from ablation.verdict.gated import extended_by_plan
from ablation.verdict.model import INCOMPLETE, REPLICATED, SELECTED, WIN_VERIFIED
from ablation.verdict.phase2 import Phase2, phase2_of
from ablation.verdict.run import RunReader

GATE_OF = {
    "held-out": "held-out",
    "never-used": "never-used",
    "selection": "selection",
    "main": "release",
    "agent": "release",
    "safety": "release",
}
"""Set -> the gate that a deviation names to have it sampled anyway."""


class Gates:
    """The gates of phase 2 as the labels of a run have them; each label is computed once, when it is asked for."""

    def __init__(self, locked: LockedPlan, root: Path, reader: RunReader | None = None) -> None:
        self.locked, self.root, self._reader = locked, root, reader

    @cached_property
    def phase2(self) -> Phase2:
        """The labels behind the gates. Raises as `ablation verdict` does."""
        return phase2_of(self.root, self.locked, self._reader)

    @property
    def replication(self) -> str:
        """The bare label of the run as `ablation verdict` shows it: without all readouts it is INCOMPLETE."""
        run, family = RunFolder(self.root), self.locked.plan.main_family
        arms = self.locked.plan.arms
        ended = (stage_is_complete(run.readout(family, arm)) or run.stopped(family, arm).is_file() for arm in arms)
        return self.phase2.replication if all(ended) else INCOMPLETE

    def held_out(self, subject: str) -> str:
        """The bare label of `subject` (ARM@UPDATES) on the held-out problems."""
        return self.phase2.section("held_out", subject).label

    @property
    def selected(self) -> str | None:
        """The checkpoint that the plan's selection chose (ARM@UPDATES); None if it has chosen none."""
        found = self.phase2.selection()
        return found.subject if found.label == SELECTED else None

    @property
    def selects(self) -> bool:
        """Whether the plan lets a selection say which checkpoint a release is tried with."""
        return self.locked.plan.extension is not None and self.locked.plan.extension.selection is not None

    def why_closed(self, set_name: str, subject: str) -> str | None:
        """Why `subject` may not be sampled on the set, deviations aside; None if it may."""
        if set_name == "never-used":
            label = self.held_out(subject)
            if label == WIN_VERIFIED:
                return None
            return f"never-used problems are for a model with {WIN_VERIFIED} on the held-out ones; {subject} has {label}"
        if self.replication != REPLICATED:
            return f"phase 2 needs {REPLICATED}; the verdict on this run is {self.replication}"
        if GATE_OF[set_name] == "release" and self.selects and self.selected != subject:
            chosen = f"that is {self.selected}" if self.selected else "none was"
            return f"a release is tried with the checkpoint that was selected; {chosen}"
        return None

    def not_as_planned(self, set_name: str, subject: str) -> list[str]:
        """All that the plan does not allow about sampling `subject` on the set, in words, but for what cannot be said (yet)."""
        found = []
        try:
            arm, _, updates = subject.partition("@")
            allowed = extended_by_plan(self.phase2) if int(updates) > self.locked.plan.training.updates else None
            if allowed is not None and arm not in allowed:
                found.append(f"the plan extends {', '.join(allowed)}, not {arm}")
            if GATE_OF[set_name] == "release" and self.selects and self.selected != subject:
                found.append(f"{subject} is not the selected checkpoint ({self.selected or 'none was selected'})")
            if set_name == "never-used" and (label := self.held_out(subject)) != WIN_VERIFIED:
                found.append(f"{subject} has {label} on the held-out problems, not {WIN_VERIFIED}")
            if set_name != "never-used" and (label := self.replication) != REPLICATED:
                found.append(f"the verdict on this run is {label}, not {REPLICATED}")
        except IncompleteError:
            pass  # a label that cannot be computed: the deviation goes before it
        return found


def check_phase_gate(
    locked: LockedPlan, root: Path, deviations: Sequence[Deviation], set_name: str, subject: str
) -> Deviation | None:
    """The deviation under which `subject` (ARM@UPDATES) is sampled on the set; None if the plan itself allows it.

    Raises `GateError` if neither does, with the command that writes such a deviation.
    """
    opened = opened_by(deviations, GATE_OF[set_name])
    if opened is not None:
        return opened
    closed = Gates(locked, root).why_closed(set_name, subject)
    if closed is None:
        return None
    command = deviate_command(locked, root, GATE_OF[set_name])
    raise GateError(f"{root}: {closed}", hint=f"Sampling it anyway is a deviation, written before it is sampled: {command}.")
