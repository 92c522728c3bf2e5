"""What driver and workers say to each other. All of it is plain data, so that Ray moves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ablation.files import sha256_bytes
from ablation.study.machine import Machine

BATCHES, UPDATES = "batches", "updates"


@dataclass(frozen=True)
class Unit:
    """A piece of work for one worker."""

    kind: str
    """BATCHES of a stage on all cells, or UPDATES of an arm."""
    family: str
    arm: str
    stage: str
    """`sweep`, `readout`, `check` or `update`."""
    updates: int
    """With BATCHES: how many updates the arm has behind it."""
    batches: tuple[int, ...] = ()
    """With BATCHES: their numbers."""
    first: int = 0
    """With UPDATES: the first and the last one."""
    last: int = 0

    @property
    def name(self) -> str:
        """For a message, and for Ray's list of tasks."""
        if self.kind == UPDATES:
            return f"{self.family}/{self.arm}: updates {self.first} to {self.last}"
        return f"{self.family}/{self.arm}/{self.stage}: batches {', '.join(map(str, self.batches))}"


@dataclass(frozen=True)
class Order:
    """A unit, and what a worker must know of the run."""

    unit: Unit
    plan: str
    """Name of the plan's file."""
    places: dict[str, str]
    """Field -> where the driver has that resource, for those with a place relative to the plan."""
    up: int
    """How many folders above the plan's own such a place may begin."""
    backend: str
    machine: Machine
    versions: dict[str, str | None]
    events: tuple[dict[str, Any], ...]
    """Of the journal: those that the unit's code looks for."""
    names: dict[str, str]
    """`run` and `plan`: how the driver calls them, for messages."""


@dataclass(frozen=True)
class Content:
    """A file's bytes on the way, with their digest."""

    data: bytes
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Content:
        return cls(data, sha256_bytes(data))

    def whole(self) -> bool:
        """Whether it is what was sent."""
        return sha256_bytes(self.data) == self.sha256


@dataclass(frozen=True)
class Began:
    """The first thing that a worker says."""

    worker: str
    """HOST:PID and the first digits of the node's id."""


@dataclass(frozen=True)
class Holds:
    """What samples in the worker: nothing else may have sampled the same stage."""

    engine: dict[str, Any]


@dataclass(frozen=True)
class Delivery:
    """An event, and what was written after it and before the next one."""

    event: str | None
    data: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Content] = field(default_factory=dict)
    """Path below the run folder -> content."""
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """A call of the reporter."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Refused:
    """An expected error ended the unit."""

    exit_code: int
    message: str
    hint: str | None
