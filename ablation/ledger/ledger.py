"""The ledger: which problem was ever sampled, trained on or evaluated, in one append-only chained file of the project.

It lies in `runs/ledger.jsonl` (see `ledger_path`) and each line is a *mark*: a plan's digest, a stage, a use, and the set of
problems that it was done with, written before the first rollout of that stage. A set's problems are listed in the first mark that
names it; later ones have its digest only. A problem is its text: see `problems.digest`. A line with a `folder` is a run that
began: its name is the digest of its journal's first line.
"""

from __future__ import annotations

import fcntl
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from ablation.chain import Chain, Head, append_line, chained_line, cut_torn_tail, read_chain
from ablation.errors import IntegrityError, UsageError
from ablation.files import disk_errors, json_bytes, lock_file, sha256_bytes, sync_folder
from ablation.problems.digest import fingerprint
from ablation.problems.plain import fault
from ablation.problems.problem import Problem

USES = {
    "sampled": "rollouts were sampled, as in a sweep",
    "trained": "rollouts were sampled and trained on",
    "evaluated": "rollouts were sampled to judge a model",
}
"""Use of a problem -> what it means."""

_FIELDS = {"number": int, "time": str, "plan": str, "study": str, "stage": str, "use": str, "set": str}
_RUN_FIELDS = {"number": int, "time": str, "plan": str, "study": str, "run": str, "folder": str}


@dataclass(frozen=True)
class Used:
    """One problem of a set."""

    id: str
    text: str
    near: str


@dataclass(frozen=True)
class Mark:
    """One line of the ledger."""

    number: int
    """1, 2, ... in the order of writing."""
    time: str
    """UTC, ISO 8601 with offset."""
    plan: str
    """Digest of the plan; empty for what was done outside one."""
    study: str
    """Its name, or what an imported mark says of where it comes from."""
    stage: str
    """For instance `main/C/update-1`."""
    use: str
    """One of `USES`."""
    set: str
    """Digest of the set of problems."""
    problems: tuple[Used, ...]
    reason: str | None
    """Why an imported mark was made; None for one that a run wrote."""
    run: str | None = None
    """The run that wrote it, see `RunMark`; None for an imported one, and for one of an earlier version of this program."""
    journal: Head | None = None
    """Of that run's journal, when it wrote the mark; None for one of an earlier version of this program."""

    def in_words(self) -> str:
        """For instance `trained on in study, main/C/update-1 (mark 3, 2026-11-29T12:00:00+00:00)`."""
        done = "trained on" if self.use == "trained" else self.use
        return f"{done} in {self.study}, {self.stage} (mark {self.number}, {self.time})"


@dataclass(frozen=True)
class RunMark:
    """One line of the ledger that says that a run began, or went on in another folder."""

    number: int
    time: str
    plan: str
    study: str
    run: str
    """SHA-256 of the first line of its journal."""
    folder: str
    """From the ledger's folder."""
    journal: Head | None = None
    """When a runner of it ended; None where one began."""


@dataclass(frozen=True)
class OtherRun:
    """A run of a plan beside the one that is asked about."""

    run: str | None
    """None: marks of an earlier version of this program, which do not name their run."""
    folder: str
    began: str
    """UTC, by the clock of its machine."""
    stages: int
    """How many of its stages have a mark: it was about to sample them."""


@dataclass(frozen=True)
class Sibling:
    """Another plan that used some of the same problems in the same way."""

    plan: str
    study: str
    began: str
    shared: dict[str, tuple[int, int]]
    """Use -> (how many of the plan's own problems, of how many)."""


@dataclass(frozen=True)
class Conflict:
    """A problem that has a mark, or whose text but for its numbers has one."""

    problem: str
    other: str
    """The id of the marked problem."""
    near: bool
    """Only alike: the same text with other numbers."""
    mark: Mark

    def in_words(self) -> str:
        """One line for a message."""
        how = "is the same but for its numbers as" if self.near else "is"
        named = "" if self.problem == self.other and not self.near else f" {how} `{self.other}`, which"
        return f"`{self.problem}`{named} was {self.mark.in_words()}"


@dataclass(frozen=True)
class Ledger:
    """The marks of a ledger whose chain holds."""

    path: Path
    chain: Chain
    marks: list[Mark]
    runs: list[RunMark]
    """One for each run and folder."""
    heads: list[tuple[Mark | RunMark, Head]]
    """What the marks have of their run's journal, in the order of writing."""

    def conflicts(self, problems: Iterable[Problem]) -> list[Conflict]:
        """For each of `problems` that was ever used: the first mark of its text, or else of its text with other numbers."""
        same: dict[str, tuple[Mark, Used]] = {}
        alike: dict[str, tuple[Mark, Used]] = {}
        for mark in self.marks:
            for used in mark.problems:
                same.setdefault(used.text, (mark, used))
                alike.setdefault(used.near, (mark, used))
        found = []
        for problem in problems:
            own = fingerprint(problem)
            for near, table, key in ((False, same, own.text), (True, alike, own.near)):
                if key in table:
                    mark, used = table[key]
                    found.append(Conflict(problem.id, used.id, near, mark))
                    break
        return found

    def has(self, plan: str, study: str, stage: str, use: str, problems: Sequence[Problem], run: str | None) -> bool:
        """Whether exactly this was marked before."""
        wanted = (plan, study, stage, use, _set_digest(_used(problems)), run)
        return any((one.plan, one.study, one.stage, one.use, one.set, one.run) == wanted for one in self.marks)

    def other_runs(self, plan: str, run: str | None, folder: str, began: str | None) -> list[OtherRun]:
        """Runs of the plan with the digest `plan`, but that in `folder` whose journal begins with the line `run` at `began`."""
        stages: dict[str | None, dict[str, str]] = defaultdict(dict)
        for mark in self.marks:
            if mark.plan == plan and (mark.run is not None or began is None or mark.time[:19] < began[:19]):
                stages[mark.run].setdefault(mark.stage, mark.time)
        found = [
            OtherRun(one.run, one.folder, one.time, len(stages[one.run]))
            for one in self.runs
            if one.plan == plan and (one.run, one.folder) != (run, folder)
        ]
        unnamed = stages.get(None)
        return found + ([OtherRun(None, "", min(unnamed.values()), len(unnamed))] if unnamed else [])

    def siblings(self, plan: str) -> list[Sibling]:
        """Plans that used problems of the plan with the digest `plan` as that did."""
        own: dict[str, set[str]] = defaultdict(set)
        others: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        first: dict[str, Mark] = {}
        for mark in self.marks:
            used = own if mark.plan == plan else others[mark.plan]
            used[mark.use].update(one.text for one in mark.problems)
            first.setdefault(mark.plan, mark)
        found = []
        for other in others.keys() - {""}:
            both = {use: (len(texts & others[other][use]), len(texts)) for use, texts in own.items()}
            shared = {use: counts for use, counts in both.items() if counts[0]}
            if shared:
                found.append(Sibling(other, first[other].study, first[other].time, shared))
        return sorted(found, key=lambda one: first[one.plan].number)


def ledger_path(plan_path: Path) -> Path:
    """`runs/ledger.jsonl` beside the folder that the plan lies in, where its run folders are, too."""
    folder = Path(plan_path).resolve().parent
    return (folder.parent if folder.name == "plans" else folder) / "runs" / "ledger.jsonl"


def read_ledger(path: Path) -> Ledger:
    """The ledger in `path`; empty if there is none. A torn last line is left out: its writer was killed before it sampled.

    Raises `IntegrityError` naming the line that was edited, dropped, repeated or moved.
    """
    chain = read_chain(path, counter="number", first=1, what="ledger")
    sets: dict[str, tuple[Used, ...]] = {}
    lines = [_run_mark(path, record) if "folder" in record else _mark(path, record, sets) for record in chain.records]
    runs: dict[tuple[str, str, str], RunMark] = {}
    for one in lines:
        if isinstance(one, RunMark):
            runs.setdefault((one.plan, one.run, one.folder), one)
    heads = [(one, one.journal) for one in lines if one.journal is not None]
    return Ledger(path, chain, [one for one in lines if isinstance(one, Mark)], list(runs.values()), heads)


def write_mark(
    path: Path,
    *,
    plan: str,
    study: str,
    stage: str,
    use: str,
    problems: Sequence[Problem],
    reason: str | None = None,
    run: str | None = None,
    journal: Head | None = None,
) -> Mark | None:
    """Append a mark durably; None if the ledger has this very one (a run that goes on after a kill marks nothing twice).

    `run`: see `RunMark`; `journal`: the head of its journal now. Raises `IntegrityError` if the ledger was edited, `DiskError` if
    it cannot be written.
    """
    if use not in USES:
        raise UsageError(f"`{use}` is no use of a problem; there are: {', '.join(USES)}")
    if not problems:
        raise UsageError("a mark needs at least one problem")
    for name, text in (("study", study), ("stage", stage), ("reason", reason)):
        if text is not None and (not text.strip() or fault(text)):
            raise UsageError(f"{name}: found {text!r}; it must be a text that says something, in UTF-8")
    with _held(path) as (handle, ledger):
        if ledger.has(plan, study, stage, use, problems, run):
            return None
        used = _used(problems)
        digest = _set_digest(used)
        about: dict[str, Any] = {"plan": plan, "study": study, "stage": stage, "use": use, "set": digest}
        about |= {name: value for name, value in (("reason", reason), ("run", run)) if value is not None}
        about |= {} if journal is None else {"journal": str(journal)}
        if digest not in {mark.set for mark in ledger.marks}:
            about["problems"] = [[one.id, one.text, one.near] for one in used]
        return _mark(path, _append(handle, ledger, about), {digest: used})


def write_run(path: Path, *, plan: str, study: str, run: str, folder: str, journal: Head | None = None) -> None:
    """Append durably that a run began, or (with `journal`) that a runner of it ended, unless the ledger has it.

    See `RunMark` for arguments, `write_mark` for errors.
    """
    about: dict[str, Any] = {"plan": plan, "study": study, "run": run, "folder": folder}
    with _held(path) as (handle, ledger):
        if journal is None and any((one.plan, one.run, one.folder) == (plan, run, folder) for one in ledger.runs):
            return
        _append(handle, ledger, about | ({} if journal is None else {"journal": str(journal)}))


@contextmanager
def _held(path: Path) -> Iterator[tuple[BinaryIO, Ledger]]:
    """The ledger, open and read, and nobody else's until the block ends: several runs of a project may mark at once."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed below
    with handle:
        lock_file(handle, path, fcntl.LOCK_EX)
        cut_torn_tail(path)
        yield handle, read_ledger(path)


def _append(handle: BinaryIO, ledger: Ledger, about: dict[str, Any]) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"number": len(ledger.chain.records) + 1, "time": now, **about}
    append_line(ledger.path, handle, chained_line(record, ledger.chain.head.sha256))
    with disk_errors(ledger.path):
        sync_folder(ledger.path.parent)
    return record


def _used(problems: Sequence[Problem]) -> tuple[Used, ...]:
    marked = [(problem.id, fingerprint(problem)) for problem in problems]
    return tuple(sorted((Used(name, own.text, own.near) for name, own in marked), key=lambda used: (used.id, used.text)))


def _set_digest(used: Sequence[Used]) -> str:
    return sha256_bytes(json_bytes([[one.id, one.text, one.near] for one in used]))


def _check_fields(path: Path, record: dict[str, Any], fields: dict[str, type]) -> str:
    where = f"{path}:{record['number']}"
    for name, kind in fields.items():
        if not isinstance(record.get(name), kind):
            raise IntegrityError(f"{where}: `{name}` is missing or of the wrong type")
    return where


def _run_mark(path: Path, record: dict[str, Any]) -> RunMark:
    _check_fields(path, record, _RUN_FIELDS)
    return RunMark(**{name: record[name] for name in _RUN_FIELDS}, journal=_head(path, record))


def _head(path: Path, record: dict[str, Any]) -> Head | None:
    try:
        return None if record.get("journal") is None else Head.parse(str(record["journal"]))
    except UsageError as error:
        raise IntegrityError(f"{path}:{record['number']}: {error.message}") from None


def _mark(path: Path, record: dict[str, Any], sets: dict[str, tuple[Used, ...]]) -> Mark:
    where = _check_fields(path, record, _FIELDS)
    if "problems" in record:
        try:
            used = tuple(Used(*map(str, entry)) for entry in record["problems"])
        except TypeError:
            raise IntegrityError(f"{where}: `problems` is not a list of id, digest and near digest") from None
        if _set_digest(used) != record["set"]:
            raise IntegrityError(f"{where}: its problems do not have the digest that it names")
        sets[record["set"]] = used
    if record["set"] not in sets:
        raise IntegrityError(f"{where}: names a set of problems that no line before it lists")
    reason = record.get("reason")
    return Mark(
        number=record["number"],
        time=record["time"],
        plan=record["plan"],
        study=record["study"],
        stage=record["stage"],
        use=record["use"],
        set=record["set"],
        problems=sets[record["set"]],
        reason=None if reason is None else str(reason),
        run=None if record.get("run") is None else str(record["run"]),
        journal=_head(path, record),
    )
