"""What a run took: rollouts, tokens and seconds by stage, and on which devices, all of it from the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

KINDS = {
    "sweep": "sweeps of the starting model",
    "update": "rollouts of the updates",
    "readout": "readouts",
    "check": "checks of the extension",
    "evaluation": "comparisons on the sets of phase 2",
    "training": "training (one optimizer step an update)",
    "command": "commands of external arms",
}


@dataclass
class Spent:
    """One kind of work."""

    stages: int = 0
    rollouts: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {"stages": self.stages, "rollouts": self.rollouts, "tokens": self.tokens, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class RunCost:
    """The journal's own numbers."""

    kinds: dict[str, Spent] = field(default_factory=dict)
    """Key of `KINDS` -> what it took; only those that there were."""
    imported: Spent = field(default_factory=Spent)
    """Sampled elsewhere: how long that took is not known here."""
    reused: int = 0
    """Rollouts of references that were taken over from an earlier comparison, so they cost nothing again."""
    devices: dict[str, float] = field(default_factory=dict)
    """Device as the journal names it -> seconds of sampling and training on it."""
    began: str | None = None
    ended: str | None = None

    @property
    def sampled(self) -> Spent:
        """All sampling here."""
        return _total([one for kind, one in self.kinds.items() if kind not in ("training", "command")])

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.kinds.values())

    @property
    def wall_seconds(self) -> float | None:
        """From the first event to the last one, pauses included."""
        if self.began is None or self.ended is None:
            return None
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.began)).total_seconds()

    def as_json(self) -> dict[str, Any]:
        return {
            "kinds": {kind: one.as_json() for kind, one in self.kinds.items()},
            "sampled": self.sampled.as_json(),
            "imported": self.imported.as_json(),
            "reused_rollouts": self.reused,
            "seconds": round(self.seconds, 3),
            "devices": {name: round(seconds, 3) for name, seconds in self.devices.items()},
            "began": self.began,
            "ended": self.ended,
            "wall_seconds": None if self.wall_seconds is None else round(self.wall_seconds, 3),
        }


def run_cost(events: Sequence[dict[str, Any]]) -> RunCost:
    """What the events of a journal say that the run took."""
    kinds: dict[str, Spent] = {}
    imported, reused, devices, device = Spent(), 0, Counter[str](), "a device that the journal does not name"
    for event in events:
        name = event.get("event")
        if name == "model_loaded":
            device = device_of(event.get("environment") or {})
        elif name == "stage_imported":
            _add(imported, event)
        elif name == "stage_reused":
            reused += int(event.get("rollouts") or 0)
        elif name in ("stage_sampled", "update_trained", "command_ended"):
            kind = {"update_trained": "training", "command_ended": "command"}.get(str(name)) or kind_of(str(event.get("stage")))
            _add(kinds.setdefault(kind, Spent()), event)
            devices[device] += float(event.get("seconds") or 0.0)
    ordered = {kind: kinds[kind] for kind in KINDS if kind in kinds}
    times = [str(event["time"]) for event in events if "time" in event]
    return RunCost(ordered, imported, reused, dict(devices), times[0] if times else None, times[-1] if times else None)


def kind_of(stage: str) -> str:
    """`main/C/update-3` -> `update`."""
    first, _, _ = stage.partition("/")
    return "evaluation" if first == "evaluations" else stage.rpartition("/")[2].partition("-")[0]


def device_of(environment: dict[str, Any]) -> str:
    """The accelerator, or the processor with its threads."""
    if environment.get("accelerator"):
        return str(environment["accelerator"])
    threads = environment.get("threads")
    return f"{environment.get('cpu') or 'a processor'}" + (f", {threads} thread{'s' * (threads != 1)}" if threads else "")


def _add(one: Spent, event: dict[str, Any]) -> None:
    one.stages += 1
    one.rollouts += int(event.get("rollouts") or 0)
    one.tokens += int(event.get("tokens") or 0)
    one.seconds += float(event.get("seconds") or 0.0)


def _total(found: Sequence[Spent]) -> Spent:
    return Spent(*(sum(getattr(one, name) for one in found) for name in ("stages", "rollouts", "tokens", "seconds")))
