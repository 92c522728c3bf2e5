"""Reading the journal of a run, and whether it tells of everything that is on disk.

The journal binds the rollouts: `stage_sampled` holds the digest of the stage's `stage.json`, which holds those of its parts.
It is written before the stage is marked as complete, so a kill can leave an event without its stage, but never a
stage without its event: a stage, checkpoint or stop that the journal does not tell of means that the journal was cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.chain import Chain, Head, read_chain
from ablation.errors import IntegrityError
from ablation.files import MARKER, sha256_file
from ablation.rollouts.folder import RunFolder, stage_file

PROGRESS = ("part_written", "stage_sampled", "update_trained")
"""Events after which somebody may have seen how the run goes."""


@dataclass(frozen=True)
class JournalState:
    """A journal whose chain holds and that tells of everything in its run folder."""

    chain: Chain
    notes: tuple[str, ...] = ()

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
    """The journal in `path`, if its chain holds; `IntegrityError` names the line that was edited, dropped or moved."""
    return read_chain(path, counter="seq", first=0, what="journal")


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Every event of the journal in `path`, see `read_journal_chain`; a torn last line is not an event."""
    return read_journal_chain(path).records


def check_journal(root: Path, plan_digest: str, kept: Head | None = None) -> JournalState:
    """The journal of the run in `root`, after checking it against the plan, the disk, `verdict.json` and the head `kept`.

    Raises `IntegrityError` that says what does not fit. A run folder without anything in it passes.
    """
    run = RunFolder(root)
    chain = read_journal_chain(run.journal)
    for number, event in enumerate(chain.records, start=1):
        if event.get("plan") != plan_digest:
            raise IntegrityError(
                f"{run.journal}:{number}: belongs to plan {str(event.get('plan'))[:12]}, not to {plan_digest[:12]}",
                hint="This is the run folder of another plan: choose another one with --run.",
            )
    for line in _untold(run, chain.records):
        raise IntegrityError(
            f"{run.journal}: {line}: the journal was cut, or that was put there by other means",
            hint="Put the journal back from a copy. If there is none, this run has no proof of its history.",
        )
    if kept is not None:
        chain.check_head(kept, "the given head")
    recorded = _verdicts_head(run.verdict)
    if recorded is not None:
        chain.check_head(recorded, str(run.verdict))
    notes = ()
    if chain.torn:
        notes = (
            f"{run.journal}: after line {len(chain.records)} there are {len(chain.torn)} bytes that are no whole line: "
            "a runner is at work or was killed there, or the end was changed",
        )
    return JournalState(chain, notes)


def _untold(run: RunFolder, events: list[dict[str, Any]]) -> list[str]:
    """A line for each stage, checkpoint and stop on disk that no event tells of as it is."""
    sampled = {event.get("stage"): event.get("stage_sha256") for event in events if event.get("event") == "stage_sampled"}
    trained = {(event.get("arm"), event.get("update")) for event in events if event.get("event") == "update_trained"}
    stopped = {event.get("arm") for event in events if event.get("event") == "arm_stopped"}
    lines = []
    for folder in sorted(path.parent for path in run.root.glob("*/*/*/stage.json")):
        name = folder.relative_to(run.root).as_posix()
        if name not in sampled:
            lines.append(f"does not tell of the stage {name}, which is complete")
        elif sampled[name] != sha256_file(stage_file(folder)):
            lines.append(f"tells of another {stage_file(folder)} than the one that is there")
    for marker in sorted(run.root.glob(f"*/*/update-*/checkpoint/{MARKER}")):
        update = marker.parent.parent
        arm, number = update.parent.relative_to(run.root).as_posix(), update.name.removeprefix("update-")
        if (arm, int(number) if number.isdecimal() else None) not in trained:
            lines.append(f"does not tell of the training of {update.relative_to(run.root).as_posix()}, which has a checkpoint")
    for path in sorted(run.root.glob("*/*/stopped.json")):
        arm = path.parent.relative_to(run.root).as_posix()
        if arm not in stopped:
            lines.append(f"does not tell that a stop rule ended {arm}, but {path} says so")
    return lines


def _verdicts_head(path: Path) -> Head | None:
    """The journal's head when the last verdict was written, if there is one that names it."""
    try:
        content = json.loads(path.read_bytes())
        journal = content["journal"]
        return Head(int(journal["length"]), str(journal["head"])) if journal else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise IntegrityError(
            f"{path}: is not a verdict with the head of its journal",
            hint="Move it away and run `ablation verdict` again.",
        ) from None
