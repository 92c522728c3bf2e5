"""The runs that are shown: each with its plan, its table of rollouts, and what cannot be looked at now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation.chain import Chain
from ablation.errors import AblationError, UsageError
from ablation.rollouts.folder import RunFolder

if TYPE_CHECKING:
    from ablation.plan.lock import LockedPlan
    from ablation.rollouts.blind_record import BlindFolder
    from ablation.view.index import Index

_RUN_FILES = ("plan.yaml", "plan.lock", "journal.jsonl")


def is_run(folder: Path) -> bool:
    """Whether `folder` is meant to be a run folder, whole or not."""
    return any((folder / name).is_file() for name in _RUN_FILES)


@dataclass
class Study:
    """One run folder. Nothing is read before somebody asks for it."""

    root: Path
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def name(self) -> str:
        """The folder's name; bytes of it that are no text, which no page or address can hold, are question marks."""
        return self.root.name.encode("utf-8", "replace").decode()

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.root)

    @property
    def locked(self) -> LockedPlan:
        """The folder's own copy of the plan. Raises `IntegrityError` if it is not what was locked."""
        from ablation.study.run_folder import own_plan

        with self._lock:
            marks = tuple(path.stat().st_mtime_ns if path.is_file() else 0 for path in (self.run.plan, self.run.lock))
            if self.__dict__.get("_read", (None,))[0] != marks:
                self.__dict__["_read"] = (marks, own_plan(self.root))
            return self.__dict__["_read"][1]

    def events(self) -> list[dict[str, Any]]:
        """Every event of the journal. Raises `IntegrityError` if its chain is broken."""
        return self.journal().records

    def journal(self) -> Chain:
        """The journal, read again when it has changed. Raises `IntegrityError` if its chain is broken."""
        from ablation.rollouts.journal_chain import read_journal_chain

        try:
            status = self.run.journal.stat()
        except OSError:
            return Chain(self.run.journal, [], [])
        marks, known = (status.st_size, status.st_mtime_ns), self.__dict__.get("_events", (None,))
        if known[0] != marks:
            known = self.__dict__["_events"] = (marks, read_journal_chain(self.run.journal))
        return known[1]

    @cached_property
    def index(self) -> Index:
        from ablation.view.index import Index

        return Index(self.root.resolve(), self.locked.plan)

    def sealed_reads(self) -> list[BlindFolder]:
        """Comparisons whose texts nobody may look at here: a read of them is planned or under way, and was not opened."""
        from ablation.blind.closed import closed_reads

        return closed_reads(self.run, self.locked.plan, self.events)

    def sealed_folders(self) -> list[str]:
        """Stage folders that `sealed_reads` close."""
        from ablation.blind.closed import closing

        reads = self.sealed_reads()
        paths = {path for one in reads for path in self.run.evaluation_set(one.name).glob("*/*") if path.is_dir()}
        return [stage for stage in sorted(path.relative_to(self.root).as_posix() for path in paths) if closing(stage, reads)]


class Library:
    """A run folder, or a folder of them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._studies: dict[str, Study] = {}
        self._lock = threading.Lock()

    @property
    def single(self) -> bool:
        return is_run(self.place)

    def studies(self) -> list[Study]:
        """Every run folder that is there now, by name."""
        with self._lock:
            found = {study.name: study for study in map(Study, self._folders())}
            self._studies = {name: self._studies.get(name) or study for name, study in found.items()}
            return list(self._studies.values())

    def study(self, name: str) -> Study:
        """Raises `UsageError` if there is none of that name."""
        for one in self.studies():
            if one.name == name:
                return one
        raise UsageError(f"there is no run folder `{name[:80]}` in {self.place}", hint="Look at the list of studies.")

    def _folders(self) -> Iterator[Path]:
        if self.single:
            yield self.place.resolve()
            return
        try:
            yield from sorted(path for path in self.place.iterdir() if path.is_dir() and is_run(path))
        except OSError as error:
            raise UsageError(f"{self.place}: cannot be read: {error.strerror}") from None


def damaged(study: Study) -> str | None:
    """Why a study cannot be shown, None if it can."""
    try:
        assert study.locked
    except AblationError as error:
        return " ".join(error.lines())
    except (OSError, ValueError) as error:
        return f"{study.root}: cannot be read: {error}"
    return None
