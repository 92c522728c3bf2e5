"""Whether what was sampled in phase 2 was allowed: by the plan's own labels, or by a deviation that was written before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablation.plan.deviations import opened_by
from ablation.plan.extension import FIRST_STABLE
from ablation.rollouts.blind_record import UNSEALED
from ablation.rollouts.comparisons import OPENED
from ablation.verdict.model import REPLICATED, SELECTED, WIN_VERIFIED, Reason

if TYPE_CHECKING:
    from ablation.verdict.evaluated import Compared
    from ablation.verdict.phase2 import Phase2

GATES = {
    "held_out": "held-out",
    "never_used": "never-used",
    "selection": "selection",
    "main": "release",
    "agent": "release",
    "safety": "release",
}
"""Set, as plans say it -> the gate that a deviation names to have it sampled anyway."""


def why_not_allowed(phase2: Phase2, name: str, subject: str, compared: Compared) -> list[Reason]:
    """Empty if the plan allowed the comparison, or a deviation that was written before it did."""
    gate, numbers = GATES[name], {one.number for one in phase2.reader.deviations if GATES[name] in one.opens}
    if compared.opened in numbers:
        return []
    shut = _shut(phase2, name, subject)
    if shut is None:
        return []
    later = " before it was sampled" if numbers else ""
    text = f"{compared.name}/{subject} was sampled although its gate was shut, and no deviation opened `{gate}`{later}: {shut}."
    return [Reason("GATE_WAS_SHUT", text)]


def extended_by_plan(phase2: Phase2) -> list[str] | None:
    """The arms that the plan extends; None where it leaves that to the first stable arm, and there is none (yet)."""
    extension = phase2.plan.extension
    assert extension is not None
    if extension.arms != FIRST_STABLE:
        return list(extension.arms)
    return None if phase2.stable_arm is None else [phase2.stable_arm]


def not_as_planned(phase2: Phase2, name: str, subject: str, compared: Compared) -> list[Reason]:
    """What a deviation let through: a release with a checkpoint that was not selected, an arm that the plan does not extend."""
    found, extension = [], phase2.plan.extension
    if extension is None:
        return found
    if GATES[name] == "release" and extension.selection is not None and compared.opened is not None:
        chosen = phase2.selection()
        if chosen.label != SELECTED or chosen.subject != subject:
            which = chosen.subject if chosen.label == SELECTED else f"the selection says {chosen.label}"
            text = f"{subject} is not the selected checkpoint ({which}); it was sampled under deviation {compared.opened}."
            found.append(Reason("NOT_SELECTED", text))
    arm, _, updates = subject.partition("@")
    if int(updates) > phase2.plan.training.updates:
        found += not_extended_by_plan(phase2, arm)
    return found


def not_extended_by_plan(phase2: Phase2, arm: str) -> list[Reason]:
    """That `arm`, which was extended, is not one that the plan extends; empty if it is."""
    allowed, opened = extended_by_plan(phase2), opened_by(phase2.reader.deviations, "extension")
    if allowed is None or arm in allowed:
        return []
    how = f"it was extended under deviation {opened.number}" if opened else "no deviation opened `extension`"
    return [Reason("NOT_EXTENDED_BY_PLAN", f"The plan extends {', '.join(allowed)}, not {arm}; {how}.")]


def _shut(phase2: Phase2, name: str, subject: str) -> str | None:
    """Why the plan does not allow it, None if it does."""
    if name == "never_used":
        label = phase2.section("held_out", subject).label
        if label != WIN_VERIFIED:
            return f"it needs {WIN_VERIFIED} on the held-out problems, and {subject} has {label} there"
        return _before_unsealing(phase2, subject)
    if phase2.replication != REPLICATED:
        return f"phase 2 needs {REPLICATED}, and the replication says {phase2.replication}"
    extension = phase2.plan.extension
    if GATES[name] == "release" and extension is not None and extension.selection is not None:
        chosen = phase2.selection()
        if chosen.label != SELECTED or chosen.subject != subject:
            return f"a release is tried with the checkpoint that was selected, and the selection says {chosen.label}"
    return None


def _before_unsealing(phase2: Phase2, subject: str) -> str | None:
    """Whether never-used problems were sampled before the blinded read that allows it was opened."""
    events = phase2.reader.events

    def first(kind: str, name: str) -> int | None:
        found = (place for place, one in enumerate(events) if one.get("event") == kind and one.get("subject") == subject)
        return next((place for place in found if events[place].get("set") == name), None)

    begun, unsealed = first(OPENED, "never-used"), first(UNSEALED, "held-out")
    if begun is not None and unsealed is not None and begun < unsealed:
        return "it was begun before the blinded read was unsealed"
    return None
