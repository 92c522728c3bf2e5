"""A blinded read of a run: the comparison that it is of, and a journal that is open for one event at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablation.blind.ratings import Reply
    from ablation.blind.state import ReadState
    from ablation.plan.lock import LockedPlan
    from ablation.rollouts.blind_record import BlindFolder
    from ablation.study.journal import Journal

_TRIES, _WAIT = 20, 0.25
"""How often, and after how many seconds, the run folder's lock is tried again."""
_LOOKS = 4
"""How often a read that does not fit its journal is looked at again, where the journal has grown meanwhile."""


@dataclass(frozen=True)
class BlindRun:
    """A comparison of a run."""

    locked: LockedPlan
    folder: BlindFolder
    options: str
    """For printed commands: which set, subject, plan and run."""
    of_run: str
    """The same without set and subject."""

    @property
    def root(self) -> Path:
        return self.folder.run.root

    @contextmanager
    def journal(self, check: bool = False) -> Iterator[Journal]:
        """The run's journal, open and nobody else's; `check`: all of the run folder is compared with it first."""
        from ablation.rollouts.journal_chain import check_journal
        from ablation.study.journal import Journal
        from ablation.study.runlock import exclusive

        with ExitStack() as held:
            _patiently(lambda: held.enter_context(exclusive(self.root)))
            if check:
                check_journal(self.root, self.locked.digest)
            journal = Journal(self.folder.run.journal, self.locked.digest)
            try:
                yield journal
            finally:
                journal.close()

    def state(self, check: bool = False) -> ReadState:
        """The read as it is now; `check` as in `journal`. Nothing is held open."""
        from ablation.blind.state import read_state
        from ablation.errors import IntegrityError
        from ablation.rollouts.journal_chain import check_journal, read_journal

        events = check_journal(self.root, self.locked.digest).events if check else self.events()
        for _ in range(_LOOKS):
            try:
                return read_state(self.folder, self.locked.plan, events)
            except IntegrityError:  # another rater's line may have come since
                seen, events = events, list(read_journal(self.folder.run.journal))
                if len(events) <= len(seen):
                    raise
        return read_state(self.folder, self.locked.plan, events)

    def events(self) -> list[dict[str, Any]]:
        """All events of the run's journal."""
        from ablation.rollouts.journal_chain import read_journal

        return list(read_journal(self.folder.run.journal))

    def events_while_rated(self, state: ReadState) -> list[dict[str, Any]]:
        """The events up to the last rating if all are in, else all."""
        from ablation.rollouts.blind_record import RATED

        events, rated = self.events(), self.folder.events(self.events(), RATED)
        return events if state.missing or not rated else events[: events.index(rated[-1])]

    def add(self, rater: str) -> Callable[[list[Reply]], None]:
        """What keeps replies of `rater`, all or none."""
        from ablation.blind.ratings import add_replies
        from ablation.blind.state import read_state

        def keep(replies: list[Reply]) -> None:
            with self.journal() as journal:
                state = read_state(self.folder, self.locked.plan, journal.events)
                raters = state.settings.raters
                add_replies(self.folder, state.batch, rater, replies, raters, journal.events, journal.append)

        return keep


def find_comparison(name: str, subject: str, plan: Path | None, run: Path | None, policy: str | None = None) -> BlindRun:
    """The comparison of `subject` on the set `name`. Raises `UsageError` if the run has none of that name."""
    from shlex import quote

    from ablation.errors import UsageError
    from ablation.rollouts.blind_record import BlindFolder
    from ablation.rollouts.folder import RunFolder
    from ablation.study.run_folder import find_run

    if not re.fullmatch(r"[a-z][a-z-]{0,30}", name):
        raise UsageError(f"`{name}` is no set", hint="held-out or safety.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*@\d{1,6}", subject):
        raise UsageError(f"--subject: `{subject}` is no checkpoint", hint="ARM@UPDATES, for instance N@5.")
    locked, root, options = find_run(plan, run, policy)
    if not root.is_dir():
        raise UsageError(f"{root}: there is no such run folder")
    folder = BlindFolder(RunFolder(root), name, subject)
    own = f" --run {quote(str(run))}" if options is None and run is not None else options or ""
    if not folder.root.parent.is_dir():
        hint = f"`ablation evaluate {name} --subject {subject}{own}` makes it."
        raise UsageError(f"{folder.root.parent}: there is no such comparison", hint=hint)
    return BlindRun(locked, folder, f"{name} --subject {quote(subject)}{own}", own)


def _patiently(take: Callable[[], Any]) -> None:
    """Raters who rate at one time wait for each other's line to be written; a runner at work is told of after some seconds."""
    from ablation.errors import GateError

    for _ in range(_TRIES):
        try:
            take()
            return
        except GateError:
            time.sleep(_WAIT)
    take()
