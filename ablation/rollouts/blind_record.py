"""The files of a blinded read or a labelling batch, and whether the journal tells of them as they are.

`blind_sealed` holds the digests of what raters see and the commitment to the key; `blind_rated` that of every line of a
rater's file; `blind_unsealed` those of all of it, of the key and of the result. Each is written before its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.chain import split_torn_tail
from ablation.errors import UsageError
from ablation.files import TEMPORARY_PREFIX, sha256_bytes, sha256_file
from ablation.plan.deviations import LEFT, rater_gate
from ablation.rollouts.folder import RunFolder

SEALED, RATED, UNSEALED = "blind_sealed", "blind_rated", "blind_unsealed"
KINDS = ("pairs", "answers")
"""What a rater is given: pairs of answers to compare, or single answers to label. `KIND.json` is the file."""


@dataclass(frozen=True)
class BlindFolder:
    """The paths of the blinded read of `subject` on the set `name`. Nothing is read or created here."""

    run: RunFolder
    name: str
    subject: str

    @property
    def root(self) -> Path:
        return self.run.blind(self.name, self.subject)

    @property
    def kind(self) -> str:
        """`answers` for the safety set, else `pairs`."""
        return "answers" if self.name == "safety" else "pairs"

    @property
    def batch(self) -> Path:
        """What a rater sees, as data."""
        return self.root / f"{self.kind}.json"

    @property
    def page(self) -> Path:
        """What a rater sees, as one page for a browser."""
        return self.root / f"{self.kind}.html"

    @property
    def form(self) -> Path:
        """An empty form for the ratings of somebody else."""
        return self.root / "form.json"

    @property
    def ratings(self) -> Path:
        return self.root / "ratings"

    def rater(self, rater: str) -> Path:
        """The ratings of one rater, a chained file."""
        return self.ratings / f"{rater}.jsonl"

    @property
    def raters(self) -> list[str]:
        """Who has begun, sorted."""
        return sorted(path.stem for path in self.ratings.glob("*.jsonl") if not path.name.startswith(TEMPORARY_PREFIX))

    @property
    def key(self) -> Path:
        """The copy of the key; it is here only after unsealing."""
        return self.root / "key.json"

    @property
    def result(self) -> Path:
        return self.root / "result.json"

    def events(self, events: Sequence[dict[str, Any]], kind: str | None = None) -> list[dict[str, Any]]:
        """The events of this read among `events`, oldest first; of one kind if `kind` says so."""
        kinds = (SEALED, RATED, UNSEALED) if kind is None else (kind,)
        where = (self.name, self.subject)
        return [one for one in events if one.get("event") in kinds and (one.get("set"), one.get("subject")) == where]

    def sealing(self, events: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """The event of the sealing that counts: the newest. An earlier one was interrupted before its files were there."""
        return next(reversed(self.events(events, SEALED)), None)


def blind_folders(run: RunFolder) -> list[BlindFolder]:
    """Every blinded read that the run folder has something of."""
    found = sorted(run.root.glob("evaluations/*/*/blind"))
    return [BlindFolder(run, path.parent.parent.name, path.parent.name) for path in found if path.is_dir()]


def untold_blind(run: RunFolder, events: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each file of a blinded read that no event tells of as it is, and for each that is told of and gone."""
    return [line for folder in blind_folders(run) for line in untold_of(folder, events)]


def untold_of(folder: BlindFolder, events: Sequence[dict[str, Any]]) -> list[str]:
    """`untold_blind` of one blinded read."""

    def name(path: Path) -> str:
        return path.relative_to(folder.run.root).as_posix()

    sealed, lines = folder.sealing(events), []
    for path, field in ((folder.batch, "batch_sha256"), (folder.page, "page_sha256"), (folder.form, "form_sha256")):
        if path.is_file():
            lines += _compare(name(path), sha256_file(path), [] if sealed is None else [sealed.get(field)])
    if not folder.batch.is_file() and folder.events(events, RATED):
        lines.append(f"tells of ratings of {name(folder.batch)}, which is not there")
    for rater in sorted({*folder.raters, *(str(event.get("rater")) for event in folder.events(events, RATED))}):
        lines += _ratings(name(folder.rater(rater)), folder.rater(rater), told_lines(folder, events, rater))
    opened = folder.events(events, UNSEALED)
    for path, field in ((folder.key, "key_sha256"), (folder.result, "result_sha256")):
        if path.is_file():
            lines += _compare(name(path), sha256_file(path), [event.get(field) for event in opened])
    if opened:
        place = next(at for at, event in enumerate(events) if event is opened[0])
        late = folder.events(list(events)[place:], RATED)
        if late:
            lines.append(f"tells of a rating of {name(folder.root)} by {late[0].get('rater')} after it was unsealed")
    return lines


def left_raters(folder: BlindFolder, events: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Rater -> number of the first deviation that lets this read be opened without what that rater still owes.

    One that was written after the read was opened changes nothing.
    """
    opened = folder.events(events, UNSEALED)
    first = next((place for place, event in enumerate(events) if opened and event is opened[0]), len(events))
    begins, found = rater_gate(folder.name, folder.subject, ""), dict[str, int]()
    for event in events[:first]:
        for gate in event.get("opens") or () if event.get("event") == "deviation" else ():
            if str(gate).startswith(begins):
                found.setdefault(str(gate).removeprefix(begins), int(event["number"]))
    return found


def check_leaving(run: RunFolder, opens: Sequence[str], events: Sequence[dict[str, Any]]) -> None:
    """Raise `UsageError` for a gate of `opens` that would let a rater go and change nothing: a deviation is there for good."""
    for gate in opens:
        name, _, rest = gate.removeprefix(f"{LEFT}:").partition("/")
        subject, _, rater = rest.partition("/")
        if gate != rater_gate(name, subject, rater) or not rater:
            continue  # another gate
        folder = BlindFolder(run, name, subject)
        begun = sorted({*folder.raters, *(str(event.get("rater")) for event in folder.events(events, RATED))})
        if rater not in begun:
            names = ", ".join(f"`{one}`" for one in begun)
            raise UsageError(
                f"--opens: found `{gate}`, and `{rater}` has rated nothing of that read",
                hint=f"Who has: {names}." if begun else "Nobody has begun it.",
            )
        if folder.events(events, UNSEALED):
            raise UsageError(f"--opens: found `{gate}`, and the key was opened: nothing is waited for any more")
        if (number := left_raters(folder, events).get(rater)) is not None:
            raise UsageError(f"--opens: found `{gate}`, and `{rater}` was let go by deviation {number} already")


@dataclass(frozen=True)
class Told:
    """What the journal says of one rater's file."""

    lines: tuple[str, ...]
    """SHA-256 of each line."""
    before: tuple[str, ...]
    """The same before the newest event: what is there if its writer was killed before the lines were."""
    again: tuple[int, ...]
    """Lines that were told of twice: a writer was killed between event and line, or the line was taken back and replaced."""


def told_lines(folder: BlindFolder, events: Sequence[dict[str, Any]], rater: str) -> Told | None:
    """What `events` tell of the ratings of `rater`; None if they cannot be events of this program."""
    lines: list[str] = []
    before: list[str] = []
    again: list[int] = []
    for event in folder.events(events, RATED):
        if event.get("rater") != rater:
            continue
        first, digests = event.get("first"), event.get("lines")
        # An event may tell again of what the one before it told of, and of nothing older.
        if not isinstance(first, int) or not isinstance(digests, list) or first - 1 not in (len(before), len(lines)):
            return None
        if first - 1 < len(lines):
            again += range(first, len(lines) + 1)
        before = lines[: first - 1]
        lines = before + [str(digest) for digest in digests]
    return Told(tuple(lines), tuple(before), tuple(again))


def _compare(path: str, digest: str, told: Sequence[Any]) -> list[str]:
    if not told:
        return [f"does not tell of {path}"]
    return [] if digest in told else [f"tells of another {path} than the one that is there"]


def _ratings(path: str, file: Path, told: Told | None) -> list[str]:
    if told is None:
        return [f"has ratings of {path} out of order"]
    data = file.read_bytes() if file.is_file() else b""
    whole, torn = split_torn_tail(data)
    digests = tuple(sha256_bytes(line) for line in whole.split(b"\n")[:-1])
    if not torn and digests in (told.lines, told.before):
        return []
    pairs = zip(digests, told.lines, strict=False)
    other = next((place for place, (here, there) in enumerate(pairs, start=1) if here != there), None)
    if other is not None:
        return [f"tells of another line {other} of {path} than the one that is there"]
    if not told.lines:
        return [f"does not tell of {path}"]
    return [f"tells of {len(told.lines)} lines of {path}, which has {len(digests)}{' and a part of one' if torn else ''}"]
