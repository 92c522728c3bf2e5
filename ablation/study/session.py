"""One process at work in a run folder, from its lock to its journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablation.files import remove_partial
from ablation.plan.lock import LockedPlan
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import check_journal
from ablation.study.journal import Journal
from ablation.study.runlock import exclusive
from ablation.study.sampler import Reporter
from ablation.study.workspace import open_run


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
            removed = remove_partial(root)
            journal.append("runner_started", removed_partial_files=len(removed))
            for warning in locked.warnings:
                reporter.say(f"note: {warning}")
            yield run, journal
        finally:
            journal.close()
