"""Every single edit of a finished run's journal and JSON records, one at a time: a field changed or taken out, an event repeated."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ablation.files import json_bytes
from tests.audit.faults import reseal

CHAIN = ("seq", "prev", "sha256")
GONE = object()


def places(value: Any, at: tuple = ()) -> Iterator[tuple]:
    """The path to every leaf, into the first entry of each list and into every field of each object."""
    if isinstance(value, dict) and value:
        for name in value:
            yield from places(value[name], (*at, name))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*at, 0))
    else:
        yield at


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + (1 if isinstance(value, int) else 0.01)
    if isinstance(value, str):
        return "0" * 64 if len(value) == 64 else value[:-1] if value.endswith("x") else value + "x"
    return 1 if value is None else ["x"]


def edited(content: dict, at: tuple, to: Any) -> dict:
    """`content` with `to` at `at`; `GONE` takes the field out."""
    found = copy.deepcopy(content)
    inside = found
    for name in at[:-1]:
        inside = inside[name]
    if to is GONE:
        inside.pop(at[-1])
    else:
        inside[at[-1]] = to
    return found


def value_at(content: Any, at: tuple) -> Any:
    for name in at:
        content = content[name]
    return content


def shape(at: tuple) -> str:
    return ".".join(str(one) for one in at)


def of_content(content: dict) -> Iterator[tuple[str, dict]]:
    """(what was done, the content after it)."""
    for at in places(content):
        if at and at[0] not in CHAIN:
            yield shape(at), edited(content, at, other(value_at(content, at)))
            if isinstance(at[-1], str):
                yield f"{shape(at)} gone", edited(content, at, GONE)


@dataclass(frozen=True)
class Edit:
    """One edit of one file."""

    name: str
    """`event: field` or `file: field`."""
    path: Path
    events: Callable[[list[dict]], list[dict]] | None = None
    """What becomes of the journal's events; None for a record."""
    content: Any = None
    """What a record becomes."""
    line: int = 0
    """The journal's one line that it changes; 0: others move."""

    @property
    def kind(self) -> str:
        return self.name.split(": ")[0]

    def is_named(self, differences: list[str], root: Path) -> bool:
        """Whether one begins with its line or its file, of a stage's record with a part of that stage too."""
        place = self.path.relative_to(root).as_posix()
        begins = [f"{place}:{self.line}: " if self.line else f"{place}: "]
        if self.path.name == "stage.json":
            begins.append(f"{self.path.parent.relative_to(root).as_posix()}/part-")
        return any(one.removeprefix(f"{root}/").startswith(tuple(begins)) for one in differences)


def of_journal(root: Path) -> Iterator[Edit]:
    """Of each kind of event its last one, or of a stage and an update the last of each sort."""
    path = root / "journal.jsonl"
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    last = {(one["event"], str(one.get("stage")).rpartition("/")[2].rstrip("0123456789")): n for n, one in enumerate(records)}
    for (event, sort), place in last.items():
        name = event if sort in ("", "None") else f"{event} of {sort}"
        for what, record in of_content(records[place]):

            def changed(own, place=place, record=record):
                return [*own[:place], record, *own[place + 1 :]]

            yield Edit(f"{name}: {what}", path, changed, line=place + 1)
        yield Edit(f"{name}: twice", path, lambda own, place=place: [*own[: place + 1], *own[place:]])
        yield Edit(f"{name}: not told", path, lambda own, place=place: [*own[:place], *own[place + 1 :]])


def of_records(root: Path) -> Iterator[Edit]:
    """Of one file of each kind: the last in the order of names."""
    kinds = {}
    for path in sorted(root.rglob("*.json")):
        sort = path.parent.name.rstrip("0123456789").rstrip("-")
        kinds[f"{path.name} of {sort}" if path.name in ("stage.json", "measures.json") else path.name] = path
    kinds.pop("verdict.json", None)
    for kind, path in kinds.items():
        for what, changed in of_content(json.loads(path.read_bytes())):
            yield Edit(f"{kind}: {what}", path, content=changed)


def make(root: Path, edits: Iterable[Edit]) -> None:
    """Make the edits, at most one of each file but the journal, and then every digest and the chain good again."""
    records = {one.path: one for one in edits if one.events is None}
    before = {path: json.loads(path.read_bytes()) for path in records}
    for path, one in records.items():
        path.write_bytes(json_bytes(one.content))

    def events(own: list[dict]) -> list[dict]:
        for one in edits:
            own = one.events(own) if one.events else own
        return own

    with suppress(KeyError, OSError):  # what the digests are made good from is gone
        reseal(root, events)
    for path, one in records.items():
        if json.loads(path.read_bytes()) == before[path]:  # a digest, which was made good: the edit alone
            path.write_bytes(json_bytes(one.content))


def rounds(edits: Iterable[Edit]) -> list[list[Edit]]:
    """The edits, those together that an audit names apart: each is of a file or an event that says nothing of the others'.

    The events of one kind of the several sorts of stages, and beside them the measures of each sort and an update's audit; the
    `stage.json` of each sort; every other one by itself.
    """
    kinds: dict[str, list[Edit]] = {}
    alone = []
    for one in edits:
        if one.line or one.path.name in ("measures.json", "audit.json", "stage.json"):
            kinds.setdefault(one.kind, []).append(one)
        else:
            alone.append([one])
    events = sorted({kind.split(" of ")[0] for kind, own in kinds.items() if own[0].line})
    told = [found for event in events for found in side_by_side(kinds, rf"{event}( of .*)?")]
    records = side_by_side(kinds, r"(measures\.json of .*|audit\.json)")
    both = [[*one, *two] for one, two in zip_longest(told, records, fillvalue=())]
    return [*both, *side_by_side(kinds, r"stage\.json of .*"), *alone]


def side_by_side(kinds: dict[str, list[Edit]], pattern: str) -> list[list[Edit]]:
    """The first edit of each kind, the second of each, and so on."""
    own = [edits for kind, edits in kinds.items() if re.fullmatch(pattern, kind)]
    return [[one for one in found if one is not None] for found in zip_longest(*own)]


class Kept:
    """The JSON files of a run as they are, to be put back after an edit."""

    def __init__(self, root: Path) -> None:
        self.files = {path: path.read_bytes() for pattern in ("*.json", "*.jsonl") for path in root.rglob(pattern)}

    def put_back(self) -> None:
        for path, data in self.files.items():
            if not path.is_file() or path.read_bytes() != data:
                path.write_bytes(data)
