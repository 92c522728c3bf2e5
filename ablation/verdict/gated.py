"""Whether what was sampled in phase 2 was allowed: by the plan's own labels, or by a deviation that was written before."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
