"""Ratings: one file a rater, one reply a line, each line chained to the one before it and told of in the journal.

A line has `number` (1, 2, ...), `by` (`person`, `file` or `judge`), `blinded` (always true: a read with the key shown is none),
`batch_sha256`, `item`, `order` (`XY`; `YX` where a judge was shown the pair the other way round), `attempt`, `status` (`rated` or
`unparsed`), `values` in the batch's own X and Y (null if unparsed), `note`, and for a judge `judge`: all that it was asked with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablation.blind.batch import LABEL_QUESTION, LABEL_WORDS, NEEDED_CHECK, NOT_TOLD, PAIR_QUESTIONS, PAIRS, Batch
from ablation.chain import chained_line, read_chain
from ablation.errors import GateError, IntegrityError, UsageError
from ablation.files import json_bytes, sha256_bytes, write_bytes
from ablation.rollouts.blind_record import RATED, UNSEALED, BlindFolder, left_raters, told_lines

PERSON, FILE, JUDGE = "person", "file", "judge"
RATED_STATUS, UNPARSED = "rated", "unparsed"
ORDERS = ("XY", "YX")
Tell = Callable[..., None]
"""`Journal.append`: writes an event durably."""

_RATER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_FIELDS = {
    "number",
    "by",
    "blinded",
    "batch_sha256",
    "item",
    "order",
    "attempt",
    "status",
    "values",
    "note",
    "judge",
    "prev",
    "sha256",
}


@dataclass(frozen=True)
class Reply:
    """One reply of a rater to one item."""

    item: int
    values: dict[str, Any] | None
    """In the batch's own X and Y; None: unparsed."""
    by: str
    order: str = "XY"
    attempt: int = 1
    note: str = ""
    judge: dict[str, Any] | None = None

    @property
    def status(self) -> str:
        return UNPARSED if self.values is None else RATED_STATUS


@dataclass(frozen=True)
class Ratings:
    """All replies of one rater, oldest first."""

    rater: str
    replies: tuple[Reply, ...]
    head: str
    """SHA-256 of the last line."""
    data: bytes
    again: tuple[int, ...] = field(default=())
    """Lines that the journal tells of twice."""

    @property
    def by(self) -> str | None:
        """How this rater rates; None before the first reply."""
        return self.replies[0].by if self.replies else None

    def final(self, item: int, order: str) -> Reply | None:
        """The last reply to that item in that order."""
        return next((one for one in reversed(self.replies) if (one.item, one.order) == (item, order)), None)

    def attempts(self, item: int, order: str) -> int:
        return sum((one.item, one.order) == (item, order) for one in self.replies)


def check_rater(rater: str) -> str:
    """`rater`, if it can be the name of one. Raises `UsageError`."""
    if not _RATER.fullmatch(rater):
        raise UsageError(f"`{rater}` is no name for a rater", hint="Letters, digits, _ and -, at most 40.")
    return rater


def read_ratings(folder: BlindFolder, batch: Batch, rater: str, events: Sequence[dict[str, Any]]) -> Ratings:
    """The replies of `rater`, checked; none if there is no file. What the journal tells is checked by `untold_of`.

    Raises `IntegrityError` naming the line that is not a reply to this batch, or that does not go with the others.
    """
    path = folder.rater(rater)
    chain = read_chain(path, counter="number", first=1, what="ratings file")
    replies = tuple(_reply(record, batch, f"{path}:{number}") for number, record in enumerate(chain.records, start=1))
    for number, one in enumerate(replies, start=1):
        if one.by != replies[0].by or _setting(one) != _setting(replies[0]):
            raise IntegrityError(f"{path}:{number}: was asked in another way than the lines before it; they are never pooled")
        earlier = [other for other in replies[: number - 1] if (other.item, other.order) == (one.item, one.order)]
        if any(other.values is not None for other in earlier) or one.attempt != len(earlier) + 1:
            raise IntegrityError(f"{path}:{number}: item {one.item} was rated before")
    told = told_lines(folder, events, rater)
    data = path.read_bytes() if path.is_file() else b""
    return Ratings(rater, replies, chain.head.sha256, data, () if told is None else told.again)


def all_ratings(folder: BlindFolder, batch: Batch, events: Sequence[dict[str, Any]]) -> dict[str, Ratings]:
    """Every rater's replies, by name."""
    return {rater: read_ratings(folder, batch, rater, events) for rater in folder.raters}


def add_replies(
    folder: BlindFolder,
    batch: Batch,
    rater: str,
    replies: Sequence[Reply],
    raters: int,
    events: Sequence[dict[str, Any]],
    tell: Tell,
) -> None:
    """Append `replies`, all or none: told to the journal, then written and synced. `raters`: how many the plan asks for.

    Raises:
        GateError: the read was unsealed, or the plan's raters are others.
        UsageError: an item was rated before, or this rater was asked in another way so far.
    """
    check_open(folder, rater, raters, events, left_raters(folder, events))
    have = read_ratings(folder, batch, rater, events)
    for place, one in enumerate(replies):
        earlier = [other for other in (*have.replies, *replies[:place]) if (other.item, other.order) == (one.item, one.order)]
        if any(other.values is not None for other in earlier) or len(earlier) + 1 != one.attempt:
            raise UsageError(f"item {one.item} was rated by `{rater}` before", hint="A rating is never replaced.")
        check_way(have, one.by, one.judge)
    lines, head = [], have.head
    for number, one in enumerate(replies, start=len(have.replies) + 1):
        line = chained_line(_record(one, number, batch), head)
        head = sha256_bytes(line)
        lines.append(line)
    digests = [sha256_bytes(line) for line in lines]
    tell(RATED, set=folder.name, subject=folder.subject, rater=rater, first=len(have.replies) + 1, lines=digests)
    write_bytes(folder.rater(rater), have.data + b"".join(line + b"\n" for line in lines))


def check_open(
    folder: BlindFolder, rater: str, raters: int, events: Sequence[dict[str, Any]], left: Mapping[str, int] | None = None
) -> None:
    """Raise `GateError` if no rating of `rater` can be taken now. `left`: see `left_raters`."""
    check_rater(rater)
    if folder.events(events, UNSEALED):
        raise GateError(
            f"{folder.root}: the key was opened; no rating is taken after that",
            hint="A rating by somebody who can know whose answer it is would not be blinded.",
        )
    if rater in (left or {}):
        raise GateError(
            f"`{rater}` left this read by deviation {(left or {})[rater]}; no rating of theirs is taken after that",
            hint="Who left does not come back: what they would say now could depend on what the others said.",
        )
    begun = folder.raters
    if rater not in begun and len(begun) >= raters:
        names = ", ".join(f"`{name}`" for name in begun)
        raise GateError(
            f"the plan asks for {raters} rater{'s' * (raters != 1)}, and {names} {'has' if len(begun) == 1 else 'have'} begun",
            hint="Raters are not added or exchanged later: go on under the name that began.",
        )


def check_way(have: Ratings, by: str, judge: dict[str, Any] | None) -> None:
    """Raise `UsageError` if `have` has replies that were asked for in another way: they are never pooled."""
    if have.replies and have.by != by:
        raise UsageError(f"`{have.rater}` rates by {have.by}, not by {by}", hint="One rater is one way of rating.")
    if have.replies and judge is not None and _setting(have.replies[0]) != _same(judge):
        ours, now = _setting(have.replies[0]) or {}, _same(judge) or {}
        other = sorted(name for name in {*ours, *now} if ours.get(name) != now.get(name))
        raise UsageError(
            f"`{have.rater}` was asked with another {', '.join(f'`{name}`' for name in other)} so far",
            hint="Replies that were asked for in different ways are never pooled: use the values of the first reply.",
        )


def _record(one: Reply, number: int, batch: Batch) -> dict[str, Any]:
    return {
        "number": number,
        "by": one.by,
        "blinded": True,
        "batch_sha256": batch.sha256,
        "item": one.item,
        "order": one.order,
        "attempt": one.attempt,
        "status": one.status,
        "values": one.values,
        "note": one.note,
        "judge": one.judge,
    }


def _reply(record: dict[str, Any], batch: Batch, where: str) -> Reply:
    def wrong(what: str) -> IntegrityError:
        return IntegrityError(f"{where}: {what}", hint="Put the file back from a copy; nobody but this program writes it.")

    if set(record) != _FIELDS:
        raise wrong("is not a rating (" + ", ".join(sorted(set(record) ^ _FIELDS)) + ")")
    if record["batch_sha256"] != batch.sha256:
        raise wrong("rates another batch")
    if record["blinded"] is not True:
        raise wrong("is not a blinded rating; others are never pooled with it")
    item, values = batch.item(record["item"]), record["values"]
    if item is None:
        raise wrong(f"there is no item {record['item']}")
    if record["by"] not in (PERSON, FILE, JUDGE) or record["order"] not in ORDERS or not isinstance(record["attempt"], int):
        raise wrong("is not a rating (by, order, attempt)")
    if (record["status"] == UNPARSED) != (values is None) or record["status"] not in (RATED_STATUS, UNPARSED):
        raise wrong(f"has status {record['status']}")
    if values is None and record["by"] != JUDGE:
        raise wrong("has no rating")
    if values is not None and (
        not isinstance(values, dict)
        or set(values) != set(item.fields)
        or any(item.fault(name, values[name]) for name in item.fields)
    ):
        raise wrong("its values are not answers to the questions")
    if (record["by"] == JUDGE) != isinstance(record["judge"], dict) or not isinstance(record["note"], str):
        raise wrong("is not a rating (judge, note)")
    return Reply(record["item"], values, record["by"], record["order"], record["attempt"], record["note"], record["judge"])


_OWN = ("prompt_sha256", "seed", "reply", "thinking", "finish_reason", "problem", "served_model", "system_fingerprint", "tokens")
"""What differs between the replies of one judge."""


def _same(judge: dict[str, Any] | None) -> dict[str, Any] | None:
    """What all replies of one judge share."""
    return None if judge is None else {name: value for name, value in judge.items() if name not in _OWN}


def _setting(one: Reply) -> dict[str, Any] | None:
    return _same(one.judge)


def form_bytes(batch: Batch) -> bytes:
    """An empty form, for somebody who rates elsewhere."""
    ratings = [{"item": one.number, **dict.fromkeys(one.fields), "note": ""} for one in batch.items]
    asked: dict[str, Any] = {"blinded": f"true means: {NOT_TOLD}"}
    if batch.kind == PAIRS:
        asked |= {name: f"{text} (true or false)" for name, text in PAIR_QUESTIONS.items()} | {"check": NEEDED_CHECK}
    else:
        used = {label for one in batch.items for label in one.labels}
        asked |= {"label": LABEL_QUESTION, "labels": {label: text for label, text in LABEL_WORDS.items() if label in used}}
    content = {"ablation_ratings": 1, "batch_sha256": batch.sha256, "explained": asked, "blinded": None, "ratings": ratings}
    return json_bytes(content)
