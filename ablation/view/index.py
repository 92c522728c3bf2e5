"""All rollouts of a run in a table in memory: filled by a thread of its own, stage by stage, and again when something appears."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ablation.errors import AblationError, IntegrityError
from ablation.files import sha256_file
from ablation.plan.model import Plan
from ablation.problems.problem import Problem, load_problems
from ablation.rollouts.folder import RunFolder, grades_file, stage_file
from ablation.rollouts.store import stage_parts
from ablation.view import cache, rows

LOOK_AGAIN = 1.5
"""Seconds between two looks at the folder."""
_UNREADABLE = (AblationError, OSError, MemoryError, ValueError, KeyError, TypeError, pa.ArrowException, duckdb.Error)
"""What reading a folder that somebody else changed can raise."""
WHOLE_RUN = "."
"""Key in `Progress.damaged` of what hides all rollouts."""
_TYPES = {pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}


@dataclass
class Progress:
    """How far the table is."""

    done: int = 0
    units: int = 0
    """Complete stages, and parts of stages that are not complete."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Folder -> why its rollouts are not shown."""
    scanned: bool = False
    """The folder was looked through, so that `units` is known."""

    @property
    def whole(self) -> bool:
        return self.scanned and self.done >= self.units


class Index:
    """The table `rollouts` of one run: `rows.SCHEMA`, and `id`."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.run, self.plan = RunFolder(root), plan
        self._connection = duckdb.connect(config={"enable_external_access": True, "threads": 2})
        self._connection.execute("SET preserve_insertion_order = false")
        columns = ", ".join(f'"{one.name}" {_TYPES[one.type]}' for one in rows.SCHEMA)
        self._connection.execute("CREATE SEQUENCE ids")
        self._connection.execute(f"CREATE TABLE rollouts (id BIGINT DEFAULT nextval('ids'), {columns})")
        self.progress = Progress()
        self.version = 0
        """Changes whenever the table does."""
        self.choices: tuple[int, dict[str, list[str]]] | None = None
        """What `query.choices` found at a version."""
        self._units: dict[tuple[str, str | None], Any] = {}
        self._problems: dict[Path, tuple[str, dict[str, Problem] | None]] = {}
        self._lock, self._looked, self._thread = threading.Lock(), 0.0, None

    def sql(self, query: str, values: dict[str, Any] | list[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query; safe from any thread."""
        with self._connection.cursor() as cursor:
            return cursor.execute(query, values or []).fetchall()

    def look(self, wait: float = 0.0) -> Progress:
        """Begin to read what is new in the run folder, unless that was done a moment ago; wait up to `wait` seconds for it.

        How far it is now: what is asked of the table after that holds at least as much.
        """
        with self._lock:
            running = self._thread is not None and self._thread.is_alive()
            if not running and time.monotonic() - self._looked > LOOK_AGAIN:
                self._thread = threading.Thread(target=self._fill, daemon=True)
                self._thread.start()
            thread = self._thread
        if wait and thread is not None:
            thread.join(wait)
        now = self.progress
        return replace(now, damaged=dict(now.damaged))  # a page is not to say that all is there when it is shown, if it was not

    def _fill(self) -> None:
        try:
            self._read_new()
        except _UNREADABLE as error:  # the thread has nobody else to tell
            why = f"{self.run.root}: its rollouts cannot be read ({type(error).__name__}: {error})"
            self.progress.damaged[WHOLE_RUN] = why
            self.progress.done, self.progress.scanned = self.progress.units, True
        finally:
            self._looked = time.monotonic()

    def _read_new(self) -> None:
        self.progress.damaged.pop(WHOLE_RUN, None)
        wanted = self._wanted()
        gone = [unit for unit in self._units if wanted.get(unit) != self._units[unit]]
        new = [unit for unit in wanted if unit not in self._units or unit in gone]
        self.progress = Progress(len(wanted) - len(new), len(wanted), dict(self.progress.damaged), scanned=True)
        for unit in gone:
            self._remove(unit)
        known = {unit: table for unit in new if (table := self._known(unit)) is not None}
        if known:  # all at once: a table of its own for each stage would take longer than reading it
            try:
                self._insert(pa.concat_tables(known.values()))
            except _UNREADABLE:  # one by one, so that the one that does not fit is named
                known = {}
        for unit in known:
            self._units[unit] = wanted[unit]
            self.progress.done += 1
        for unit in new:
            if unit not in known:
                self._add(unit)
                self._units[unit] = wanted[unit]
                self.progress.done += 1

    def _wanted(self) -> dict[tuple[str, str | None], Any]:
        """(stage folder, None) of each complete stage and (folder, part) of the others' parts -> what changes when it does."""
        found: dict[tuple[str, str | None], Any] = {}
        folders = {path.parent for path in self.run.root.glob("*/*/*/part-*.parquet")}
        folders |= {path.parent for path in self.run.root.glob("evaluations/*/*/*/part-*.parquet")}
        folders |= {path.parent for path in self.run.stage_files()}
        for folder in sorted(folders):
            name = folder.relative_to(self.run.root).as_posix()
            try:
                if stage_file(folder).is_file():
                    made = (stage_file(folder), grades_file(folder))
                    marks = [path.stat().st_mtime_ns for path in made if path.is_file()]
                    found[name, None] = (*marks, cache.touched(folder))
                else:
                    for part in stage_parts(folder):
                        found[name, part.name] = part.stat().st_mtime_ns
            except FileNotFoundError:
                if any(path.is_symlink() for path in stage_parts(folder)):  # to nowhere: reading it says so
                    found[name, None] = "a link"
                continue  # it is being replaced; the next look sees it
            except OSError as error:
                found[name, None] = str(error)  # reading it says so
        return found

    def _remove(self, unit: tuple[str, str | None]) -> None:
        folder, part = unit
        with self._connection.cursor() as cursor:
            cursor.execute("DELETE FROM rollouts WHERE folder = ? AND (? IS NULL OR part = ?)", [folder, part, part])
        self.version += 1
        self._units.pop(unit, None)
        self.progress.damaged.pop(folder, None)

    def _known(self, unit: tuple[str, str | None]) -> pa.Table | None:
        """The rows of a complete stage that were made before, None if they have to be made."""
        folder, part = unit
        with contextlib.suppress(*_UNREADABLE):
            return None if part is not None else cache.read(self._key(folder), self.run.root / folder)
        return None

    def _add(self, unit: tuple[str, str | None]) -> None:
        folder, part = unit
        try:
            for path in stage_parts(self.run.root / folder) if part is None else [self.run.root / folder / part]:
                if not path.is_file():  # opening a pipe would wait for ever
                    raise IntegrityError(
                        f"{path}: is no file (a pipe, a device, a folder or a link to nowhere)", hint="Remove it."
                    )
            problems = self._of_set(folder)[1]
            if part is not None:
                table = rows.part_rows(self.run.root, folder, part, self.plan, problems)
            else:
                key, seen = self._key(folder), cache.touched(self.run.root / folder)
                table = rows.stage_rows(self.run.root, folder, self.plan, problems)
                cache.keep(key, table, seen)
            self._insert(table)
        except AblationError as error:
            self.progress.damaged[folder] = " ".join(error.lines())
        except _UNREADABLE as error:
            self.progress.damaged[folder] = f"{folder}: cannot be read ({type(error).__name__}: {error})"

    def _insert(self, table: pa.Table) -> None:
        names = ", ".join(f'"{name}"' for name in rows.SCHEMA.names)
        with self._connection.cursor() as cursor:
            cursor.register("fresh", table)
            cursor.execute(f"INSERT INTO rollouts ({names}) SELECT {names} FROM fresh")
            cursor.unregister("fresh")
        self.version += 1

    def _key(self, folder: str) -> str:
        return cache.stage_key(self.run.root / folder, self.plan, self._of_set(folder)[0])

    def _of_set(self, folder: str) -> tuple[str, dict[str, Problem] | None]:
        """(digest, problems) of what the stage asks; no problems where it asks something else."""
        name = rows.Place.of(folder).evaluation
        path = self.run.problems if name is None else self.run.set_problems(name)
        if not path.is_file():
            raise IntegrityError(f"{path}: is not there, so nothing of {folder} can be graded", hint="Put it back from a copy.")
        digest = sha256_file(path)
        if path not in self._problems or self._problems[path][0] != digest:
            self._problems[path] = (digest, load_problems(path) if path.name == "problems.jsonl" else None)
        return self._problems[path]

    def problems(self, folder: str) -> dict[str, Problem]:
        """The problems that the stage in `folder` asks; empty where it asks something else."""
        return self._of_set(folder)[1] or {}


def in_background(work: Callable[[], None]) -> None:
    """Do `work` in a thread that does not keep the program alive."""
    threading.Thread(target=work, daemon=True).start()
