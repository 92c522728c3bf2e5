"""What of a run was done more than once: named beside every label, because somebody may have chosen among the outcomes.

A runner that was killed between an event and its file does the same again. Where that came out the same, byte for byte, nothing
was chosen and nothing is said; the journal has the digests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ablation.plan.model import START

_STAGE, _PART, _UPDATE, _CHECKPOINT, _IN_FLIGHT = "stage", "part", "update", "checkpoint", "in flight"
_TOLD = {
    "stage_sampled": (_STAGE, "stage_sha256"),
    "stage_imported": (_STAGE, "stage_sha256"),
    "stage_reused": (_STAGE, "stage_sha256"),
    "part_written": (_PART, "part_sha256"),
    "update_trained": (_UPDATE, "audit_sha256"),
    "checkpoint_saved": (_CHECKPOINT, "checkpoint_sha256"),
}
"""Event -> what it tells of, and its field with the digest."""
_WORDS = {
    _STAGE: "sampled or imported",
    _PART: "sampled in part",
    _UPDATE: "trained",
    _CHECKPOINT: "saved",
    _IN_FLIGHT: "begun",
}
"""What was done, the gravest first."""


@dataclass(frozen=True)
class Redone:
    """A stage or an update that has more than one outcome in the journal. Times are UTC, digests SHA-256."""

    name: str
    """`main/C/update-1`, `evaluations/held-out/N@5/subject`."""
    what: str
    """Which of it was done again: see `_WORDS`."""
    times: int
    """How often it was done."""
    outcomes: int | None
    """How many digests these have; None where the journal lacks one."""
    first_time: str
    first_sha256: str | None
    """None where the journal has no digest: of rollouts in flight, and of events of an earlier version of this program."""
    last_time: str
    """Of what stands now."""
    last_sha256: str | None

    @property
    def owner(self) -> str:
        """`main/C`, `held-out/N@5`: whose labels rest on it."""
        return self.name.removeprefix("evaluations/").rpartition("/")[0]

    def in_words(self) -> str:
        ends = ((self.first_time, self.first_sha256), (self.last_time, self.last_sha256))
        first, last = (f"{time} ({digest[:16]})" if digest else time for time, digest in ends)
        how = f"with {self.outcomes} outcomes" if self.outcomes else "and the journal does not show that they are one"
        return f"{self.name} was {_WORDS[self.what]} {self.times} times, {how}: first at {first}, what stands now at {last}"


@dataclass(frozen=True)
class Attempts:
    """Every attempt beside the one that the labels are of."""

    redone: tuple[Redone, ...] = ()

    def lines(self) -> list[str]:
        """Each attempt in words."""
        return [f"Done again: {one.in_words()}." for one in self.redone]

    def marks(self, arm: str | None = None) -> tuple[str, ...]:
        """What stands in parentheses behind a label: that of `arm` (`main/C`), or of the whole run."""
        owners = dict.fromkeys(one.owner for one in self.redone)
        if arm is not None:
            return ("redone",) if owners.keys() & {arm, f"{arm.partition('/')[0]}/{START}"} else ()
        return (f"redone: {', '.join(owners)}",) if owners else ()

    def as_json(self) -> dict[str, Any]:
        return {"redone": [asdict(one) for one in self.redone]} if self.redone else {}


def attempts_of(events: Sequence[Mapping[str, Any]]) -> Attempts:
    """All that the `events` of a run's journal tell of. Their chain holds."""
    return Attempts(tuple(redone(events)))


def redone(events: Iterable[Mapping[str, Any]]) -> list[Redone]:
    """Each stage and each update that came out in more than one way, once, by the gravest of what was done again."""
    told: dict[tuple[str, str, str], list[tuple[str, str | None]]] = defaultdict(list)
    for event in events:
        kind, time, stage = str(event["event"]), str(event["time"]), str(event.get("stage"))
        if kind in _TOLD:
            what, field = _TOLD[kind]
            name = stage if what in (_STAGE, _PART) else f"{event.get('arm')}/update-{event.get('update')}"
            told[name, what, str(event.get("part", ""))].append((time, None if event.get(field) is None else str(event[field])))
        elif kind == "stage_streamed" and "worker" not in event:  # several workers of a cluster stream one stage
            told[stage, _IN_FLIGHT, str(len(told[stage, _STAGE, ""]))].append((time, None))
    found: dict[tuple[str, bool], Redone] = {}
    for wanted in _WORDS:
        for (name, what, _), times in told.items():
            digests = {digest for _, digest in times}
            if what == wanted and len(times) > 1 and (None in digests or len(digests) > 1):
                one = Redone(name, what, len(times), None if None in digests else len(digests), *times[0], *times[-1])
                found.setdefault((name, what in (_UPDATE, _CHECKPOINT)), one)
    return sorted(found.values(), key=lambda one: one.first_time)
