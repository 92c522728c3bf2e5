"""Reading the journal of a run, and whether it tells of everything that is on disk.

The journal binds the rollouts: `stage_sampled` holds the digest of the stage's `stage.json`, which holds those of its parts;
`update_trained`, `arm_stopped`, `check_judged` and `extension_stopped` hold those of `audit.json`, `stopped.json`,
`check.json` and `extension-stopped.json`, `stage_graded` that of `grades.json`, `checkpoint_saved` that of a checkpoint's
marker; `rollouts.blind_record` has those of a blinded read. Rollouts that were sampled elsewhere have `stage_imported` in
place of `stage_sampled`, and a reference that was taken over from an earlier comparison `stage_reused`.
It is written before the stage is marked as complete, so a kill can leave an event without its stage, but never a
stage without its event: a stage, checkpoint or stop that the journal does not tell of means that the journal was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ablation.chain import Chain, Head, read_chain
from ablation.errors import IntegrityError
from ablation.files import MARKER, parse_json, sha256_file
from ablation.rollouts.blind_record import untold_blind
from ablation.rollouts.folder import RunFolder

COMPLETED = ("stage_sampled", "stage_imported", "stage_reused")
"""Events of a complete stage."""
SAMPLED = ("stage_streamed", "part_written", "stage_sampled")
"""Events of rollouts that come onto the disk."""
PROGRESS = (*SAMPLED, *COMPLETED, "update_trained")
"""Events after which somebody may have seen how the run goes."""
STOPS = {"arm_stopped": "stopped.json", "extension_stopped": "extension-stopped.json"}
"""Events of a stop rule that ended an arm, or its extension -> the record that is written next, in the arm's folder."""
_KINDS: dict[str, tuple[frozenset[type], str]] = {
    **dict.fromkeys(
        ("rollouts", "tokens", "trained_tokens", "scored_tokens", "update", "deviation", "items"),
        (frozenset({int}), "a whole number"),
    ),
    **dict.fromkeys(("seconds", "hours"), (frozenset({int, float}), "a number")),
    **dict.fromkeys(("stage", "arm", "set", "subject", "kind"), (frozenset({str}), "a text")),
    **dict.fromkeys(("environment", "there"), (frozenset({dict}), "an object")),
    "other_runs": (frozenset({list}), "a list"),
}
"""Fields that readers use -> what they have to be where they are there."""
_LOOKS = 4
"""How often a run folder that does not fit its journal is looked at again, where the journal has grown meanwhile."""
_MOST = 10**15
"""Larger numbers are none that a run can have, and no sum of them could be shown."""


@dataclass(frozen=True)
class JournalState:
    """A journal whose chain holds and that tells of everything in its run folder."""

    chain: Chain
    notes: tuple[str, ...] = ()
    stale_grades: tuple[str, ...] = ()
    """Stages whose `grades.json` is an earlier one than the newest event tells of: grading them again was interrupted."""

    @property
    def head(self) -> Head:
        return self.chain.head

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.chain.records

    @property
    def began(self) -> str | None:
        """Time of the first event (UTC, ISO 8601): nothing of the run is older, by the clock of its machine."""
        return self.events[0]["time"] if self.events else None

    def as_json(self) -> dict[str, Any]:
        return {"length": self.head.length, "head": self.head.sha256, "first_event": self.began}


def read_journal_chain(path: Path) -> Chain:
    """The journal in `path`, if its chain holds and its fields are of their kinds.

    `IntegrityError` names the line that was edited, dropped or moved, or has a field that no event can have.
    """
    chain = read_chain(path, counter="seq", first=0, what="journal")
    for number, event in enumerate(chain.records, start=1):
        if (fault := _fault(event)) is not None:
            name, wanted = fault
            found = repr(event[name])[:60] if name in event else "nothing"
            raise IntegrityError(
                f"{path}:{number}: `{name}` is {found}, not {wanted}",
                hint="The chain holds, so the line was written so, and not by this program. Take the journal back from a copy.",
            )
    return chain


def _fault(event: dict[str, Any]) -> tuple[str, str] | None:
    """(field, what it has to be) of the first field that no reader could use; a journal may have a million events."""
    name = event.get("event")
    if type(name) is not str or not name.strip():
        return "event", "the name of an event"
    try:
        zone = datetime.fromisoformat(event["time"]).tzinfo
    except (KeyError, TypeError, ValueError):
        zone = None
    if zone is None:
        return "time", "an ISO 8601 time with its zone"
    for name, value in event.items():
        if name in _KINDS and value is not None:
            types, wanted = _KINDS[name]
            kind = type(value)
            if kind not in types or (kind in (int, float) and not 0 <= value <= _MOST):
                return name, wanted
    return None


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Every event of the journal in `path`, see `read_journal_chain`; a torn last line is not an event."""
    return read_journal_chain(path).records


def has_grown(path: Path, chain: Chain) -> bool:
    """Whether the journal in `path` has more lines than `chain`, which was read from it a moment ago."""
    return len(read_journal_chain(path).records) > len(chain.records)


def check_journal(root: Path, plan_digest: str, kept: Head | None = None) -> JournalState:
    """The journal of the run in `root`, after checking it against the plan, the disk, `verdict.json` and the head `kept`.

    Raises `IntegrityError` that says what does not fit. A run folder without anything in it passes.
    """
    run, undone = RunFolder(root), ""
    for last in (*[False] * _LOOKS, True):
        # The disk first: a runner that is at work writes an event before what it tells of.
        disk, recorded = _on_disk(run), _verdicts_head(run.verdict)
        chain = read_journal_chain(run.journal)
        for number, event in enumerate(chain.records, start=1):
            if event.get("plan") != plan_digest:
                raise IntegrityError(
                    f"{run.journal}:{number}: belongs to plan {str(event.get('plan'))[:12]}, not to {plan_digest[:12]}",
                    hint="This is the run folder of another plan: choose another one with --run.",
                )
        untold = _untold(disk, chain.records) + untold_blind(run, chain.records)
        undone = _undone_stop(disk, chain.records)
        # Raters add lines while this looks: a file that is newer than the journal that was read is no damage.
        if not (untold or undone) or last or not has_grown(run.journal, chain):
            break
    if untold:
        more = f" (and {len(untold) - 1} more)" if len(untold) > 1 else ""
        hint = "Put the journal back from a copy. If there is none, this run has no proof of its history."
        if untold[0].endswith("grades.json than the one that is there"):
            hint = "Put the file back from a copy, or remove it: `ablation grade` grades the rollouts anew."
        raise IntegrityError(
            f"{run.journal}: {untold[0]}{more}: the journal was cut, or that was put there by other means", hint=hint
        )
    if undone:
        raise IntegrityError(
            f"{run.journal}:{undone}", hint="What a stop rule ended stays ended: put the arm's folder back from a copy."
        )
    if kept is not None:
        chain.check_head(kept, "the given head")
    if recorded is not None:
        chain.check_head(recorded, str(run.verdict))
    notes = [f"{run.journal.name}: {note}" for note in _set_back(chain.records)]
    if chain.torn:
        notes.append(
            f"{run.journal}: after line {len(chain.records)} there are {len(chain.torn)} bytes that are no whole line: "
            "a runner is at work or was killed there, or the end was changed"
        )
    return JournalState(chain, tuple(notes), _stale_grades(disk, chain.records))


def clock_note(state: JournalState, locked_at: str) -> list[str]:
    """A line if, by its clock, the journal begins before the plan was locked (at `locked_at`, as the lock says)."""
    try:
        if state.began is None or datetime.fromisoformat(state.began) >= datetime.fromisoformat(locked_at):
            return []
    except (TypeError, ValueError):  # a lock that somebody wrote otherwise
        return [f"the plan's lock names no time that can be read: {locked_at!r}"]
    return [f"by its clock the journal begins ({state.began}) before the plan was locked ({locked_at})"]


def _set_back(events: list[dict[str, Any]]) -> list[str]:
    """A line if the times go back by a second or more: by how much at most, and where."""
    latest, most, where = datetime.min.replace(tzinfo=UTC), timedelta(seconds=1), 0
    for number, event in enumerate(events, start=1):
        time = datetime.fromisoformat(event["time"])
        if latest - time >= most:
            most, where = latest - time, number
        latest = max(latest, time)
    by = timedelta(seconds=round(most.total_seconds()))
    text = f"line {where} is {by} earlier than a line before it: a clock was set back, or several machines wrote it"
    return [text] if where else []


def _undone_stop(disk: _Disk, events: list[dict[str, Any]]) -> str:
    """`LINE: ...` of an arm that a stop rule ended and that went on, or whose record of it is gone; empty where there is none.

    A runner that is killed after the event leaves the audit that the rule looked at, and the next one writes the record.
    """
    ended: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, event in enumerate(events, start=1):
        kind = event["event"]
        if kind in STOPS:
            ended[str(event.get("arm"))] = (number, event)
        elif ended and kind != "stage_graded":
            arm = event.get("arm") or str(event.get("stage")).rpartition("/")[0]
            if arm in ended:
                return f"{ended[arm][0]}: a stop rule ended {arm} there, but line {number} ({kind}) goes on with it"
    for arm, (number, event) in ended.items():
        path = f"{arm}/{STOPS[event['event']]}"
        if path not in disk.stops and (arm, f"update-{event.get('update')}") not in disk.audits:
            return f"{number}: a stop rule ended {arm} there, but {path} is not there: it was removed"
    return ""


@dataclass(frozen=True)
class _Disk:
    """What a run folder has to show; names are `FAMILY/ARM/STAGE` (`evaluations/SET/SUBJECT/MODEL`) and `FAMILY/ARM`."""

    stages: dict[str, str]
    """Complete stage -> SHA-256 of its `stage.json`."""
    trained: dict[tuple[str, str], str]
    """(arm, `update-K`) with a checkpoint -> SHA-256 of its marker, which has the digests of all its files."""
    audits: dict[tuple[str, str], str]
    """(arm, `update-K`) -> SHA-256 of its `audit.json`."""
    stops: dict[str, str]
    """`stopped.json` or `extension-stopped.json` of an arm -> its SHA-256."""
    checks: dict[str, str]
    """`check.json` of a check -> its SHA-256."""
    grades: dict[str, str]
    """`grades.json` of a stage -> its SHA-256."""


def _on_disk(run: RunFolder) -> _Disk:
    def name(path: Path) -> str:
        return path.relative_to(run.root).as_posix()

    def digests(*patterns: str) -> dict[str, str]:
        return {name(path): sha256_file(path) for pattern in patterns for path in sorted(run.root.glob(pattern))}

    stages = {name(path.parent): sha256_file(path) for path in run.stage_files()}
    updates = {marker.parent.parent: marker for marker in sorted(run.root.glob(f"*/*/update-*/checkpoint/{MARKER}"))}
    audits = {
        (name(path.parent.parent), path.parent.name): sha256_file(path)
        for path in sorted(run.root.glob("*/*/update-*/audit.json"))
    }
    return _Disk(
        stages,
        trained={(name(update.parent), update.name): sha256_file(marker) for update, marker in updates.items()},
        audits=audits,
        stops=digests("*/*/stopped.json", "*/*/extension-stopped.json"),
        checks=digests("*/*/check-*/check.json"),
        grades=digests("*/*/*/grades.json", "evaluations/*/*/*/grades.json"),
    )


def _untold(disk: _Disk, events: list[dict[str, Any]]) -> list[str]:
    """A line for each stage, checkpoint, stop and judged check on disk that no event tells of as it is."""

    def of(kind: str) -> list[dict[str, Any]]:
        return [event for event in events if event.get("event") == kind]

    sampled = {event.get("stage"): event.get("stage_sha256") for event in events if event.get("event") in COMPLETED}
    trained = {(event.get("arm"), f"update-{event.get('update')}"): event.get("audit_sha256") for event in of("update_trained")}
    stopped = {f"{event.get('arm')}/stopped.json": event.get("stopped_sha256") for event in of("arm_stopped")}
    stopped |= {f"{event.get('arm')}/extension-stopped.json": event.get("stopped_sha256") for event in of("extension_stopped")}
    judged = {
        f"{event.get('arm')}/check-{event.get('update')}/check.json": event.get("check_sha256") for event in of("check_judged")
    }
    lines = [f"does not tell of the stage {name}, which is complete" for name in disk.stages if name not in sampled]
    lines += [
        f"tells of another {name}/stage.json than the one that is there"
        for name, digest in disk.stages.items()
        if name in sampled and sampled[name] != digest
    ]
    lines += [
        f"does not tell of the training of {arm}/{update}, which has a checkpoint"
        for arm, update in disk.trained
        if (arm, update) not in trained
    ]
    saved: dict[tuple[str, str], set[str]] = {}  # more than one where a runner was killed before the folder was there
    for event in of("checkpoint_saved"):
        saved.setdefault((str(event.get("arm")), f"update-{event.get('update')}"), set()).add(str(event.get("checkpoint_sha256")))
    lines += [
        f"tells of another {'/'.join(update)}/checkpoint than the one that is there"
        for update, digest in disk.trained.items()
        if update in saved and digest not in saved[update]
    ]
    # An event of an earlier version of this program names no digest, and its audit may still wait for the event.
    lines += [
        f"tells of another {'/'.join(update)}/audit.json than the one that is there"
        for update, digest in disk.audits.items()
        if trained.get(update) not in (None, digest)
    ]
    lines += [
        f"tells of another {path} than the one that is there"
        for path, digest in (disk.stops | disk.checks).items()
        if (stopped | judged).get(path) not in (None, digest)
    ]
    lines += [f"does not tell of the result of a check, {path}" for path in disk.checks if path not in judged]
    told = _graded(events)
    for path, digest in disk.grades.items():
        if path not in told:
            lines.append(f"does not tell of the grades in {path}")
        elif digest not in told[path]:
            lines.append(f"tells of another {path} than the one that is there")
    for path in disk.stops:
        arm, _, record = path.rpartition("/")
        if path not in stopped:
            lines.append(f"does not tell that a stop rule ended {arm}, which has a {record}")
    return lines


def _graded(events: list[dict[str, Any]]) -> dict[str, list[str]]:
    """`grades.json` of a stage -> every digest that it was told to have, oldest first."""
    found: dict[str, list[str]] = {}
    for event in events:
        if event.get("event") == "stage_graded":
            found.setdefault(f"{event.get('stage')}/grades.json", []).append(str(event.get("grades_sha256")))
    return found


def _stale_grades(disk: _Disk, events: list[dict[str, Any]]) -> tuple[str, ...]:
    told = _graded(events)
    return tuple(path.rpartition("/")[0] for path, digest in disk.grades.items() if digest != told[path][-1])


def _verdicts_head(path: Path) -> Head | None:
    """The journal's head when the last verdict was written, if there is one that names it."""
    try:
        content = parse_json(path.read_bytes())
        journal = content["journal"]
        return Head(int(journal["length"]), str(journal["head"])) if journal else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IntegrityError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError):
        raise IntegrityError(
            f"{path}: is not a verdict with the head of its journal",
            hint="Move it away and run `ablation verdict` again.",
        ) from None
