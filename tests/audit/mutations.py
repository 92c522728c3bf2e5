"""Every single edit of a finished run's journal and JSON records, one at a time: a field changed or taken out, an event repeated."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
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


def of_journal(root: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """(`event: field`, the edit): of each kind of event its last one, or of a stage and an update the last of each sort."""
    records = [json.loads(line) for line in (root / "journal.jsonl").read_bytes().splitlines()]
    last = {(one["event"], str(one.get("stage")).rpartition("/")[2].rstrip("0123456789")): n for n, one in enumerate(records)}
    for (event, sort), place in last.items():
        name = event if sort in ("", "None") else f"{event} of {sort}"
        for what, record in of_content(records[place]):
            yield (
                f"{name}: {what}",
                lambda place=place, record=record: reseal(root, lambda own: [*own[:place], record, *own[place + 1 :]]),
            )
        yield f"{name}: twice", lambda place=place: reseal(root, lambda own: [*own[: place + 1], *own[place:]])
        yield f"{name}: not told", lambda place=place: reseal(root, lambda own: [*own[:place], *own[place + 1 :]])


def of_records(root: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """(`file: field`, the edit), of one file of each kind: the last in the order of names."""
    kinds = {}
    for path in sorted(root.rglob("*.json")):
        sort = path.parent.name.rstrip("0123456789").rstrip("-")
        kinds[f"{path.name} of {sort}" if path.name in ("stage.json", "measures.json") else path.name] = path
    kinds.pop("verdict.json", None)
    for kind, path in kinds.items():
        content = json.loads(path.read_bytes())
        for what, changed in of_content(content):

            def change(path=path, before=content, changed=changed) -> None:
                path.write_bytes(json_bytes(changed))
                with suppress(KeyError, OSError):  # what the digests are made good from is gone
                    reseal(root)
                if json.loads(path.read_bytes()) == before:  # a digest, which was made good: the edit alone
                    path.write_bytes(json_bytes(changed))

            yield f"{kind}: {what}", change


def edits(root: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """(name, edit) of every single edit of the run in `root`; each is to be put back before the next."""
    yield from of_journal(root)
    yield from of_records(root)


class Kept:
    """The JSON files of a run as they are, to be put back after an edit."""

    def __init__(self, root: Path) -> None:
        self.files = {path: path.read_bytes() for pattern in ("*.json", "*.jsonl") for path in root.rglob(pattern)}

    def put_back(self) -> None:
        for path, data in self.files.items():
            if not path.is_file() or path.read_bytes() != data:
                path.write_bytes(data)
