"""One process at work in a run folder, from its lock to its journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ablation.errors import AblationError
from ablation.files import remove_partial
from ablation.ledger.ledger import ledger_path, read_ledger, write_run
from ablation.plan.lock import LockedPlan
from ablation.rollouts.attempts import folder_from, other_runs
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import check_journal
from ablation.study.journal import Journal
from ablation.study.runlock import exclusive
from ablation.study.sampler import Reporter
from ablation.study.workspace import open_run


def begin_session(locked: LockedPlan, root: Path, journal: Journal) -> None:
    """Clear what a killed runner left, write down which other runs of the plan the ledger knows, and that this one is there.

    A reviewer who has the run folder alone reads in its journal whether this was the first run.
    """
    path = ledger_path(locked.path)
    folder = folder_from(path, root)
    others = other_runs(read_ledger(path), locked.digest, journal.run, folder, journal.events)
    removed = remove_partial(root)
    told = [{"run": one.run, "folder": one.folder, "began": one.began, "stages": one.stages} for one in others]
    journal.append("runner_started", removed_partial_files=len(removed), other_runs=told)
    assert journal.run is not None
    write_run(path, plan=locked.digest, study=locked.plan.name, run=journal.run, folder=folder)


def end_session(locked: LockedPlan, root: Path, journal: Journal) -> None:
    """Write into the ledger how far the journal is, so that it cannot be cut back in silence."""
    path = ledger_path(locked.path)
    assert journal.run is not None
    about = {"plan": locked.digest, "study": locked.plan.name, "run": journal.run, "folder": folder_from(path, root)}
    with suppress(AblationError):  # what ended the session matters more, and what it did is whole without this
        write_run(path, **about, journal=journal.head)


@contextmanager
def run_session(locked: LockedPlan, root: Path, reporter: Reporter) -> Iterator[tuple[RunFolder, Journal]]:
    """The run in `root`, held by this process alone until the block ends, and its open journal.

    Raises `GateError` if another runner holds it, `IntegrityError` if it belongs to another plan or was changed.
    """
    with exclusive(root):
        run = open_run(root, locked)
        check_journal(root, locked.digest)
        journal = Journal(run.journal, locked.digest)
        try:
            if journal.torn is not None:
                reporter.say(f"the journal's last line was torn; it is kept in {journal.torn.name}")
            begin_session(locked, root, journal)
            for warning in locked.warnings:
                reporter.say(f"note: {warning}")
            try:
                yield run, journal
            finally:
                end_session(locked, root, journal)
        finally:
            journal.close()
