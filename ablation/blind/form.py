"""Ratings that somebody filled in elsewhere: a JSON file, read whole or not at all, every fault with its line and field."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.blind.batch import Batch, Item
from ablation.blind.ratings import FILE, Ratings, Reply
from ablation.errors import UsageError

_TOP = ("ablation_ratings", "batch_sha256", "blinded", "ratings")
_EXPLAINED = "explained"
"""What the form tells the rater; nothing of it is read."""
_SPACE = re.compile(r"[ \t\r\n]*")
_LIMIT = 10_000_000
_NOTE = 10_000
_DIGITS = 18
_MOST = 20
"""Faults that are listed."""


def read_form(path: Path, batch: Batch, have: Ratings) -> list[Reply]:
    """The replies in the file `path`; `have`: what this rater said before.

    Raises `UsageError` naming file, line and field: no JSON, another batch, not blinded, an unknown item, one that was rated
    before (in the file or earlier), a question without an answer, an answer of the wrong type, an unknown field. What is wrong
    with `blinded` and with the ratings is told together.
    """
    text = _text(path)
    content, lines = _parse(path, text)

    def wrong(line: int, field: str, what: str, hint: str) -> UsageError:
        return UsageError(_whole(f"{path}:{line}: {field}: {what}"), hint=hint)

    for name in _TOP:
        if name not in content:
            raise wrong(1, name, "is missing", "Fill in `form.json` as it was made; it has this field.")
    faults: list[UsageError] = []
    for name in content:
        if name not in (*_TOP, _EXPLAINED):
            raise wrong(lines[name], name, "is no field of this form", f"Fields: {', '.join(_TOP)}.")
    if content["ablation_ratings"] != 1 or isinstance(content["ablation_ratings"], bool):
        raise wrong(
            lines["ablation_ratings"],
            "ablation_ratings",
            f"found {_json(content['ablation_ratings'])}, not 1",
            "Use the form of this batch.",
        )
    if content["batch_sha256"] != batch.sha256:
        raise wrong(
            lines["batch_sha256"],
            "batch_sha256",
            "these are ratings of another batch",
            f"This one is {batch.sha256}; nothing was taken.",
        )
    if content["blinded"] is not True:
        found = "nothing" if content["blinded"] is None else _json(content["blinded"])
        hint = "true, if nobody told the rater whose answers these are; other ratings are never pooled."
        faults.append(wrong(lines["blinded"], "blinded", f"found {found}, not true", hint))
    if not isinstance(content["ratings"], list) or not content["ratings"]:
        raise _together([*faults, wrong(lines["ratings"], "ratings", "is not a list of ratings", "One object an item.")])
    replies, first = [], {one.item: 0 for one in have.replies}
    for place, row in enumerate(content["ratings"]):
        line, field = lines[("ratings", place)], f"ratings[{place}]"
        if not isinstance(row, dict):
            faults.append(wrong(line, field, f"found {_json(row)}, not an object", "One object an item."))
            continue
        number = row.get("item")
        item = batch.item(number)
        if item is None:
            found = "is missing" if "item" not in row else f"there is no item {_json(number)}"
            faults.append(wrong(line, f"{field}.item", found, f"Items of this batch are numbered 1 to {len(batch)}."))
            continue
        if item.number in first:
            before = f"in line {first[item.number]}" if first[item.number] else f"by `{have.rater}` earlier"
            once = "A rating is given once, and never replaced."
            faults.append(wrong(line, f"{field}.item", f"item {item.number} was rated {before}", once))
            continue
        first[item.number] = line
        own = [wrong(line, f"{field}.{name}", what, hint) for name, what, hint in _faults(row, item)]
        faults += own
        if not own:
            replies.append(Reply(item.number, {name: row[name] for name in item.fields}, FILE, note=row.get("note", "")))
    if faults:
        raise _together(faults)
    return replies


def _together(faults: list[UsageError]) -> UsageError:
    """One error with a line for each of the first faults, and each hint once."""
    lines = [one.message for one in faults[:_MOST]]
    lines += [f"... and {len(faults) - _MOST} more"] if len(faults) > _MOST else []
    return UsageError("\n".join(lines), hint=" ".join(dict.fromkeys(one.hint or "" for one in faults)))


def _faults(row: dict[str, Any], item: Item) -> Iterator[tuple[str, str, str]]:
    """(field, what is wrong, what to do) of each fault of one rating."""
    for name in row:
        if name not in ("item", "note", *item.fields):
            yield name, "is no field of a rating", f"Fields: item, {', '.join(item.fields)}, note."
    for name in item.fields:
        if name not in row or row[name] is None:
            yield (
                name,
                f"item {item.number} has no answer to this question",
                "Every question must be answered; nothing was taken.",
            )
        elif fault := item.fault(name, row[name]):
            yield name, fault, "Nothing was taken."
    note = row.get("note", "")
    if not isinstance(note, str) or len(note) > _NOTE:
        yield "note", f"is not a text of at most {_NOTE:,} characters", "Write it in quotes, or leave it out."
    elif _whole(note) != note:
        yield "note", f"has half of a character ({json.dumps(note)[:40]})", "Write the character itself."


def _text(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a pipe could wait for ever, and a device never end
            raise UsageError(f"{path}: is not a file", hint="Check the path of the ratings.")
        if found.st_size > _LIMIT:
            raise UsageError(f"{path}: is larger than {_LIMIT:,} bytes", hint="A form of ratings is small; is this another file?")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: could not be read: {why}", hint="Check the path of the ratings.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: is not UTF-8", hint="Save the file as UTF-8.") from None


class _Twice(ValueError):
    """A field that is there twice."""


def _parse(path: Path, text: str) -> tuple[dict[str, Any], dict[Any, int]]:
    """(the object, the line of each of its fields and of each rating, as `("ratings", place)`)."""
    content: dict[str, Any] = {}
    lines: dict[Any, int] = {}
    reader = _Reader(text)
    try:
        reader.take("{")
        while not reader.at_end("}", content):
            line, name = reader.line, reader.value()
            if not isinstance(name, str) or name in content:
                raise _Twice(name)
            reader.take(":")
            lines[name] = line
            if name == "ratings" and reader.next == "[":
                rows: list[Any] = []
                reader.take("[")
                while not reader.at_end("]", rows):
                    lines[("ratings", len(rows))] = reader.line
                    rows.append(reader.value())
                content[name] = rows
            else:
                content[name] = reader.value()
        reader.finish()
    except _Twice as error:
        raise UsageError(_whole(f"{path}:{reader.line}: {error}: is there twice"), hint="Keep one of them.") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}:{error.lineno}: is not JSON: {error.msg} (column {error.colno})", hint="Compare it with `form.json`."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}:{reader.line}: cannot be read: {error}", hint="Compare it with `form.json`.") from None
    return content, lines


class _Reader:
    """JSON from left to right, so that the line of every rating is known."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number, parse_int=_int)

    @property
    def next(self) -> str:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        return self.text[self.at : self.at + 1]

    @property
    def line(self) -> int:
        self.next  # noqa: B018 - moves past white space
        return self.text.count("\n", 0, self.at) + 1

    def take(self, sign: str) -> None:
        if self.next != sign:
            raise json.JSONDecodeError(f"Expecting {sign!r}", self.text, self.at)
        self.at += 1

    def value(self) -> Any:
        self.next  # noqa: B018
        value, self.at = self.decoder.raw_decode(self.text, self.at)
        return value

    def at_end(self, sign: str, before: Any) -> bool:
        """Whether the list or object ends here; takes the sign, or the comma between two members."""
        if self.next == sign:
            self.at += 1
            return True
        if before:
            self.take(",")
        return False

    def finish(self) -> None:
        if self.next:
            raise json.JSONDecodeError("Extra data", self.text, self.at)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(name)
        found[name] = value
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text[:40]} is no number")


def _int(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"{text[:10]}... is a number of {len(text)} digits, and a form has none that is so long")
    return int(text)


def _whole(text: str) -> str:
    """`text` with escapes for halves of characters, which nothing can print or store."""
    return text.encode(errors="backslashreplace").decode()


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
