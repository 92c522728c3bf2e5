"""Every attempt beside the one that is judged: what of a run was done more than once, and which other runs of its plan there are.

All of it is named beside the label, because somebody may have chosen among outcomes. A runner that was killed between an event
and its file does the same again: where that came out the same, byte for byte, nothing was chosen and nothing is said.

Each `runner_started` has the other runs that the project's ledger knew then; a ledger that is at hand tells of later ones, too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ablation.chain import Chain
from ablation.errors import IntegrityError
from ablation.files import sha256_bytes
from ablation.ledger.ledger import Ledger, OtherRun, Sibling, ledger_path, read_ledger
from ablation.plan.model import START
from ablation.rollouts.folder import RunFolder

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
_STAGES = 1_000_000
"""A run has fewer stages; a larger number is none that a runner wrote."""
_LINE = 1_000_000
"""Bytes that the first line of a journal has at most."""


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
    told: tuple[OtherRun, ...] = ()
    """Other runs of the plan, by the run's own journal: what the ledger knew when a runner began."""
    beside: tuple[str, ...] = ()
    """Other runs and sibling plans in words, by the journal and the ledger at hand."""

    def lines(self) -> list[str]:
        """Each attempt in words."""
        return [*(f"Done again: {one.in_words()}." for one in self.redone), *self.beside]

    def marks(self, arm: str | None = None) -> tuple[str, ...]:
        """What stands in parentheses behind a label: that of `arm` (`main/C`), or of the whole run. Of the folder alone."""
        runs = 1 + sum(one.stages > 0 for one in self.told)
        of = (f"one of {runs} runs",) if runs > 1 else ()
        owners = dict.fromkeys(one.owner for one in self.redone)
        if arm is not None:
            return (("redone",) if owners.keys() & {arm, f"{arm.partition('/')[0]}/{START}"} else ()) + of
        return ((f"redone: {', '.join(owners)}",) if owners else ()) + of

    def as_json(self) -> dict[str, Any]:
        """What there is, and no empty list: a verdict of an earlier version of this program has none of it."""
        found = {"redone": self.redone, "other_runs": self.told}
        content: dict[str, Any] = {name: [asdict(one) for one in of] for name, of in found.items() if of}
        return content | ({"also_run": list(self.beside)} if self.beside else {})


def attempts_of(root: Path, plan_path: Path, plan_digest: str, chain: Chain) -> Attempts:
    """All that is known of the run in `root`, whose journal is `chain`, of the locked plan in `plan_path`."""
    events, run = chain.records, chain.digests[0] if chain.digests else None
    told = runs_told(events)
    copy = Path(plan_path).resolve() == RunFolder(root).plan.resolve()  # it is judged alone
    path = root.resolve().parent / "ledger.jsonl" if copy else ledger_path(plan_path)
    return Attempts(tuple(redone(events)), tuple(told), tuple(_beside(path, plan_digest, run, root, chain, told)))


def _beside(path: Path, plan: str, run: str | None, root: Path, chain: Chain, told: Sequence[OtherRun]) -> list[str]:
    """A line for each other run, for each sibling plan, and for what cannot be known. `path`: of the ledger."""
    events = chain.records
    why, ledger = "no ledger that knows this run is at hand", None
    try:
        ledger = read_ledger(path)
    except IntegrityError as error:
        why = error.message
    if ledger is None or not any(mark.plan == plan for mark in [*ledger.marks, *ledger.runs]):
        lines = [_run_words(one, "") for one in told]
        when = "after this run began" if any("other_runs" in event for event in events) else "at other times"
        return [*lines, f"Whether the plan was also run {when} is not known here: {why}."] if run is not None else lines
    now = other_runs(ledger, plan, run, folder_from(path, root), events)
    known = {(one.run, one.folder) for one in now}
    lines = [_run_words(one, f"; {_folder_words(path, one)}") for one in now]
    lines += [_run_words(one, "; the ledger at hand does not know it") for one in told if (one.run, one.folder) not in known]
    return lines + _cut_back(ledger, run, root, chain) + [_sibling_words(one) for one in ledger.siblings(plan)]


def _cut_back(ledger: Ledger, run: str | None, root: Path, chain: Chain) -> list[str]:
    """A line if the ledger was told of a journal that this one does not go on from: its end was cut off.

    A copy that goes on by itself writes marks with the same run's name, so where there is one only this folder's own count.
    """
    folder = folder_from(ledger.path, root)
    others = [one for one in ledger.runs if one.run == run and one.folder != folder]
    copied = any(_is_there(ledger.path, OtherRun(run, one.folder, one.time, 0)) for one in others)
    for mark, head in ledger.heads:
        own = getattr(mark, "folder", None) == folder if copied else mark.run == run
        if own and chain.digest_at(head.length) != head.sha256:
            text = f"The journal was cut back: at {mark.time} it had {head.length} lines (mark {mark.number} of the ledger)"
            return [f"{text}, which it does not have now. What they told of may have been done again."]
    return []


def folder_from(ledger: Path, root: Path) -> str:
    """The run folder `root` as the ledger names it: from its own folder."""
    return Path(os.path.relpath(root.resolve(), ledger.parent.resolve())).as_posix()


def other_runs(ledger: Ledger, plan: str, run: str | None, folder: str, events: Sequence[Mapping[str, Any]]) -> list[OtherRun]:
    """As `Ledger.other_runs`; a folder that was only renamed is no other run, a copy that went on by itself is."""
    found = ledger.other_runs(plan, run, folder, str(events[0]["time"]) if events else None)
    return [one for one in found if one.run != run or _is_there(ledger.path, one)]


def runs_told(events: Iterable[Mapping[str, Any]]) -> list[OtherRun]:
    """Other runs of the plan by the journal's own `events`, each as it was told of last."""
    found: dict[tuple[str | None, str], OtherRun] = {}
    for event in events:
        for one in event.get("other_runs") or () if event["event"] == "runner_started" else ():
            if isinstance(one, dict) and type(stages := one.get("stages")) is int and 0 <= stages < _STAGES:
                run = None if one.get("run") is None else str(one["run"])
                other = OtherRun(run, str(one.get("folder")), str(one.get("began")), stages)
                found[other.run, other.folder] = other
    return list(found.values())


def _is_there(ledger: Path, one: OtherRun) -> bool:
    """Whether the folder that the ledger names holds that run. Received files are only looked at: at most one line."""
    path = RunFolder(ledger.parent / one.folder).journal
    try:
        if not path.is_file():  # a pipe would never end
            return False
        with path.open("rb") as file:
            return sha256_bytes(file.readline(_LINE).removesuffix(b"\n")) == one.run
    except (OSError, ValueError):
        return False


def _run_words(one: OtherRun, more: str) -> str:
    stages = "one stage was" if one.stages == 1 else f"{one.stages or 'no'} stages were"
    did = f"{stages} begun in it"
    if one.run is None:
        return f"Also run, by marks in the ledger that are older than this run and name none: from {one.began} on, {did}{more}."
    return f"Also run as {one.folder}: begun {one.began}, {did}{more}."


def _folder_words(ledger: Path, one: OtherRun) -> str:
    return "its folder is there" if _is_there(ledger, one) else "its folder is not there now: it was moved or removed"


def _sibling_words(one: Sibling) -> str:
    counts = ", ".join(f"{use} {count} of {of}" for use, (count, of) in one.shared.items())
    return f"The same problems in another plan, {one.study} ({one.plan[:12]}), from {one.began} on: {counts}."


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
