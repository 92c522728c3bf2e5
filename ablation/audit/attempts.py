"""What was done more than once, by the journal's events: read here again, with no code of the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ablation.audit.findings import Findings
from ablation.audit.history import COMPLETED, History

CODE = "REDONE"


class Redone:
    """Stages and updates with more than one outcome in the journal."""

    def __init__(self, history: History) -> None:
        outcomes: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
        for _, one in history.of(*COMPLETED, "part_written", "stage_streamed", "update_trained", "checkpoint_saved"):
            kind, stage, update = one["event"], str(one.get("stage")), f"{one.get('arm')}/update-{one.get('update')}"
            if kind == "stage_streamed":
                done = len(outcomes[stage, "stage_sha256"])
                if one.get("worker") is None:
                    outcomes[stage, f"in flight before completion {done + 1}"].append(one)
            elif kind == "part_written":
                outcomes[stage, "part_sha256", str(one.get("part"))].append(one)
            elif kind in COMPLETED:
                outcomes[stage, "stage_sha256"].append(one)
            else:
                outcomes[update, "audit_sha256" if kind == "update_trained" else "checkpoint_sha256"].append(one)
        self._found = {key: events for key, events in outcomes.items() if _differ(key[1], events)}
        self.names = sorted({key[0] for key in self._found})

    def marks(self) -> list[str]:
        """Behind a label of the whole run."""
        owners = dict.fromkeys(self._owner(name) for name in self._by_time())
        return [f"redone: {', '.join(owners)}"] if owners else []

    def marks_of(self, arm: str) -> list[str]:
        """Behind the label of `arm` (`main/C`), which rests on its family's sweep, too."""
        return ["redone"] if {self._owner(name) for name in self.names} & {arm, arm.split("/")[0] + "/start"} else []

    def say(self, found: Findings) -> None:
        """A note for each, with what was first and what stands now."""
        for (name, field, *part), events in sorted(self._found.items()):
            ends = " -> ".join(f"{one['time']} {str(one.get(field, 'no digest'))[:16]}" for one in (events[0], events[-1]))
            of = " ".join([field.removesuffix("_sha256"), *part])
            found.note(f"{CODE} {name} ({of}), {len(events)} times: {ends}")

    def _by_time(self) -> Iterable[str]:
        first = {name: min(str(one[0]["time"]) for key, one in self._found.items() if key[0] == name) for name in self.names}
        return sorted(self.names, key=lambda name: first[name])

    def _owner(self, name: str) -> str:
        pieces = name.split("/")
        return "/".join(pieces[1:3] if pieces[0] == "evaluations" else pieces[:2])


def _differ(field: str, events: list[Mapping[str, Any]]) -> bool:
    """Whether something came out in more than one way, or cannot be shown to have come out in one."""
    digests = [one.get(field) for one in events]
    return len(events) > 1 and (None in digests or len(set(map(str, digests))) > 1)
