"""What a run took: rollouts, tokens and seconds by stage, on which devices, and the money by the plan's prices.

Time is the journal's. Tokens that are paid for are those of the rollouts that are there, and of the journal's updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from ablation.plan.prices import KINDS as KINDS_OF_TOKENS
from ablation.plan.prices import SERVICES, Bill, Held, Prices, Tokens, bill_devices, bill_tokens, exact
from ablation.rollouts.store import stage_info, stage_is_complete, stage_tokens

KINDS = {
    "sweep": "sweeps of the starting model",
    "update": "rollouts of the updates",
    "readout": "readouts",
    "check": "checks of the extension",
    "evaluation": "comparisons on the sets of phase 2",
    "training": "training (one optimizer step an update)",
    "command": "commands of external arms",
}
WORK = ("stage_sampled", "update_trained", "command_ended")
"""Events of work that took time here."""


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
class Device:
    """What the run worked on."""

    name: str
    """As the journal names it."""
    count: int = 1
    accelerator: bool = False

    @property
    def words(self) -> str:
        return f"{self.count} x {self.name}" if self.count > 1 else self.name


@dataclass(frozen=True)
class RunCost:
    """The journal's own numbers."""

    kinds: dict[str, Spent] = field(default_factory=dict)
    """Key of `KINDS` -> what it took; only those that there were."""
    imported: Spent = field(default_factory=Spent)
    """Sampled elsewhere: how long that took is not known here."""
    reused: int = 0
    """Rollouts of references that were taken over from an earlier comparison, so they cost nothing again."""
    held: dict[Device, Decimal] = field(default_factory=dict)
    """Seconds of sampling and training by the clock; several devices are held at once."""
    service_seconds: float = 0.0
    """Seconds in which a training service sampled and trained: no device of the run did."""
    began: str | None = None
    ended: str | None = None

    @property
    def devices(self) -> dict[str, float]:
        """The same seconds by the device's name."""
        return {device.words: float(seconds) for device, seconds in self.held.items()}

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
            "service_seconds": round(self.service_seconds, 3),
            "began": self.began,
            "ended": self.ended,
            "wall_seconds": None if self.wall_seconds is None else round(self.wall_seconds, 3),
        }


@dataclass(frozen=True)
class Money:
    """What a run cost by the plan's prices."""

    bill: Bill
    tokens: Tokens = field(default_factory=Tokens)
    """Those that a training service was paid for."""
    upper: int = 0
    """Updates of a service whose journal does not say how many tokens were trained on: all of their rollouts are counted."""
    imported: int = 0
    """Rollouts that were sampled elsewhere: not priced."""

    def as_json(self) -> dict[str, Any]:
        own = {
            "tokens": self.tokens.as_json(),
            "updates_counted_whole": self.upper,
            "imported_rollouts_not_priced": self.imported,
        }
        return self.bill.as_json() | own


def run_cost(events: Sequence[dict[str, Any]], services: Mapping[str, str] | None = None) -> RunCost:
    """What the events of a journal say that the run took. `services`: the stages of a training service, see `services_of`."""
    kinds: dict[str, Spent] = {}
    last, at_service = Device("a device that the journal does not name"), 0.0
    of_worker: dict[str, Device] = {}
    imported, reused, held = Spent(), 0, dict[Device, Decimal]()
    by_command = {stage_of_event(event) for event in events if event.get("event") == "command_ended"}
    for event in events:
        name = event.get("event")
        if name == "model_loaded":
            last = of_worker[str(event.get("worker"))] = device_of(event.get("environment") or {})
        elif name == "stage_imported":
            _add(imported, event)
        elif name == "stage_reused":
            reused += int(event.get("rollouts") or 0)
        elif name in WORK:
            kind = {"update_trained": "training", "command_ended": "command"}.get(str(name)) or kind_of(str(event.get("stage")))
            if name == "update_trained" and stage_of_event(event) in by_command:
                event = {**event, "seconds": 0}  # they are the command's, which is an event of its own
            _add(kinds.setdefault(kind, Spent()), event)
            seconds = event.get("seconds") or 0
            if name != "command_ended" and stage_of_event(event) in (services or {}):
                at_service += float(seconds)
            else:  # on a cluster several workers tell of theirs in turn
                device = of_worker.get(str(event.get("worker")), last)
                held[device] = held.get(device, Decimal(0)) + exact(seconds)
    ordered = {kind: kinds[kind] for kind in KINDS if kind in kinds}
    times = [str(event["time"]) for event in events if "time" in event]
    return RunCost(ordered, imported, reused, held, at_service, times[0] if times else None, times[-1] if times else None)


def run_money(prices: Prices | None, found: RunCost, events: Sequence[dict[str, Any]], root: Path | None) -> Money | None:
    """What the run in `root` cost by `prices`, or None: tokens where a service worked, device hours where a device did."""
    if prices is None:
        return None
    tokens, upper = Tokens(), 0
    services = services_of(root, events)
    of_stage = {stage: stage_tokens(folder) for stage in services if (folder := stage_folder(root, stage)) is not None}
    for prompts, sampled in of_stage.values():
        tokens += Tokens(prefill=prompts, sample=sampled)
    for event in events:
        if event.get("event") == "model_loaded":
            tokens += _preflight(event)
        if event.get("event") != "update_trained" or (stage := stage_of_event(event)) not in services:
            continue
        trained = event.get("trained_tokens")
        if trained is None:
            trained, upper = sum(of_stage[stage]), upper + 1
        tokens += Tokens(prefill=int(event.get("scored_tokens") or 0), train=int(trained))
    held = [Held(device.words, seconds * device.count, device.accelerator) for device, seconds in found.held.items() if seconds]
    return Money(bill_tokens(prices, tokens) + bill_devices(prices, held), tokens, upper, found.imported.rollouts)


def _preflight(event: Mapping[str, Any]) -> Tokens:
    """What a service was asked for before the run, as its journal says; nothing where it says nothing."""
    told = event.get("preflight")
    counts = told.get("tokens") if isinstance(told, dict) else None
    if (
        not isinstance(counts, dict)
        or set(counts) != set(KINDS_OF_TOKENS)
        or any(type(one) is not int for one in counts.values())
    ):
        return Tokens()
    return Tokens(**counts)


def services_of(root: Path | None, events: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Stage -> training service, of the stages in `root` that one sampled."""
    found = {}
    for stage in dict.fromkeys(str(event.get("stage")) for event in events if event.get("event") == "stage_sampled"):
        folder = stage_folder(root, stage)
        if folder is not None:
            name = stage_info(folder).engine.get("name")
            if name in SERVICES:
                found[stage] = str(name)
    return found


def stage_folder(root: Path | None, stage: str) -> Path | None:
    """The complete stage that a journal names, if it is there and within the run folder."""
    if root is None:
        return None
    folder = root / stage
    inside = folder.resolve().is_relative_to(root.resolve())
    return folder if inside and stage_is_complete(folder) else None


def stage_of_event(event: Mapping[str, Any]) -> str:
    """The stage that an event of work is about; of an update, that of its rollouts."""
    return str(event["stage"]) if "stage" in event else f"{event.get('arm')}/update-{event.get('update')}"


def kind_of(stage: str) -> str:
    """`main/C/update-3` -> `update`."""
    first, _, _ = stage.partition("/")
    return "evaluation" if first == "evaluations" else stage.rpartition("/")[2].partition("-")[0]


def device_of(environment: dict[str, Any]) -> Device:
    """The accelerators that the run had, or the processor with its threads."""
    if environment.get("accelerator"):
        count = environment.get("accelerators")
        return Device(str(environment["accelerator"]), count if isinstance(count, int) and count > 0 else 1, True)
    threads = environment.get("threads")
    return Device(f"{environment.get('cpu') or 'a processor'}" + (f", {threads} thread{'s' * (threads != 1)}" if threads else ""))


def _add(one: Spent, event: dict[str, Any]) -> None:
    one.stages += 1
    one.rollouts += int(event.get("rollouts") or 0)
    one.tokens += int(event.get("tokens") or 0)
    one.seconds += float(event.get("seconds") or 0.0)


def _total(found: Sequence[Spent]) -> Spent:
    return Spent(*(sum(getattr(one, name) for one in found) for name in ("stages", "rollouts", "tokens", "seconds")))
