"""How much of a run anybody can have seen, and whether its deviations are the plan's."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ablation.errors import GateError, IntegrityError
from ablation.files import parse_json
from ablation.plan.choose import lock_path
from ablation.plan.deviations import SEEN, Deviation, check_continues, deviations_path, read_deviations
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import COMPLETED, PROGRESS, JournalState


class HasDigest(Protocol):
    """A locked plan."""

    path: Path

    @property
    def digest(self) -> str: ...


def check_lock_copy(root: Path, locked: HasDigest) -> None:
    """Raise `IntegrityError` if the run in `root` began with another lock of the plan: a plan is locked once."""
    copy, lock = RunFolder(root).lock, lock_path(locked.path)
    if copy.is_file() and lock.is_file() and copy.read_bytes() != lock.read_bytes():
        raise IntegrityError(
            f"{copy}: the run began with another lock than {lock}: the plan was locked again since",
            hint="Put the first lock back, or choose another run folder with --run.",
        )


def seen_so_far(root: Path, journal: JournalState) -> tuple[str, str]:
    """(`nothing`, `progress` or `results`, why), from the journal and the folder of the run in `root`."""
    run = RunFolder(root)
    for event in journal.events:
        stage = str(event.get("stage"))
        if event["event"] in COMPLETED and (stage.endswith("/readout") or stage.startswith("evaluations/")):
            what = "readout" if stage.endswith("/readout") else "stage"
            return "results", f"the journal tells of the {what} {stage} at {event['time']}"
        if event["event"] in ("arm_finished", "arm_stopped"):
            return "results", f"the journal tells that {event.get('arm')} ended at {event['time']}"
    if run.verdict.exists() and parse_json(run.verdict.read_bytes()).get("arms"):  # `check_journal` has read it
        return "results", f"{run.verdict} has labels of arms"
    for event in journal.events:
        if event["event"] in PROGRESS:
            return "progress", f"the journal's first {event['event']} is of {event['time']}"
    part = next(iter(sorted([*root.glob("*/*/*/part-*.parquet"), *root.glob("*/*/*/inflight/part-*.jsonl")])), None)
    if part is not None:
        return "progress", f"{part} exists"
    return "nothing", "nothing has been sampled"


def check_seen(said: str, root: Path, journal: JournalState) -> None:
    """Raise `GateError` if more of the run in `root` has been seen than `said`."""
    found, why = seen_so_far(root, journal)
    if SEEN.index(found) > SEEN.index(said):
        raise GateError(f"--seen {said} is not so: {why}", hint=f"Write it down as what it is: --seen {found}.")


def deviations_of_run(root: Path, locked: HasDigest, journal: JournalState) -> list[Deviation]:
    """Every deviation that the labels of the run in `root` carry: the plan's file, which the run's copy must agree with.

    Raises `IntegrityError` if one of the two files was edited, or the plan's or the run's lacks one that is known elsewhere.
    """
    run, beside = RunFolder(root), deviations_path(locked.path)
    copied = read_deviations(run.deviations, locked.digest)
    found = copied
    if Path(locked.path).resolve() != run.plan.resolve():  # a run folder that is judged alone has its copy only
        found = read_deviations(beside, locked.digest)
        check_continues(copied, found, (run.deviations, beside))
    told = [event for event in journal.events if event["event"] == "deviation"]
    if len(told) > len(copied):
        raise IntegrityError(
            f"{run.deviations}: has {len(copied)} deviations, but the journal tells of {len(told)}: its tail was cut off",
            hint="Put the file back: deviations are only ever added.",
        )
    for event, one in zip(told, copied, strict=False):
        if event.get("line_sha256") != one.sha256:
            raise IntegrityError(
                f"{run.deviations}:{one.number}: is not deviation {one.number} as the journal has it",
                hint="Put the file back: deviations are never edited.",
            )
    first = next(iter(journal.chain.digests), None)
    for one in found:
        if one.journal is not None and one.is_beside(root.resolve().name, first):
            journal.chain.check_head(one.journal, f"deviation {one.number}")
    return found
