"""Texts that a rater may know: another read of the same set was opened before, and its key says whose they are.

Reads of one set share the start's answers wherever the seeds are the same. A text tells something if the opened key gives it to
one model alone; in a pair of two equal texts it tells nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablation.blind.batch import PAIRS, Batch, Item, read_batch
from ablation.blind.key import read_key
from ablation.blind.leaks import LEAK, OK, Finding
from ablation.blind.ratings import JUDGE, Ratings
from ablation.errors import GateError
from ablation.rollouts.blind_record import RATED, UNSEALED, BlindFolder


@dataclass(frozen=True)
class Opened:
    """A read that was opened, and what it has in common with a batch."""

    subject: str
    items: tuple[int, ...]
    """Numbers in the batch."""
    raters: tuple[str, ...]
    """Who rated the opened read."""


def opened_reads(folder: BlindFolder, batch: Batch, events: Sequence[Mapping[str, Any]]) -> list[Opened]:
    """The other reads of the set that `events` tell of as opened and that have a text of `batch`, by subject.

    Raises `IntegrityError` if such a read's batch or key is not what was sealed.
    """
    own = [dict(one) for one in events]
    subjects = {str(one["subject"]) for one in own if one.get("event") == UNSEALED and one.get("set") == folder.name}
    found = []
    for subject in sorted(subjects - {folder.subject}):
        other = BlindFolder(folder.run, folder.name, subject)
        whose = _whose(other, own)
        items = tuple(item.number for item in batch.items if _told(item, whose))
        if items:
            raters = sorted({str(one.get("rater")) for one in other.events(own, RATED)})
            found.append(Opened(subject, items, tuple(raters)))
    return found


def _whose(other: BlindFolder, events: Sequence[dict[str, Any]]) -> dict[Any, set[str]]:
    """Problem and text -> the models that the opened key gives it to."""
    sealed = other.sealing(events)
    if sealed is None or not other.batch.is_file() or not other.key.is_file():
        return {}  # the journal's check says that files are missing
    batch, key = read_batch(other.batch), read_key(other.key, str(sealed["key_sha256"]))
    found: dict[Any, set[str]] = defaultdict(set)
    for item, row in zip(batch.items, key.items, strict=True):
        for side in item.texts:
            found[_text(item, side)].add(row[side] if batch.kind == PAIRS else row["model"])
    return found


def _text(item: Item, side: str) -> tuple[Any, ...]:
    return (item.prompt, *sorted(item.texts[side].items()))


def _told(item: Item, whose: Mapping[Any, set[str]]) -> bool:
    texts = [_text(item, side) for side in item.texts]
    if len(texts) > len(set(texts)):
        return False
    return any(len(whose.get(text, ())) == 1 for text in texts)


def known(folder: BlindFolder, batch: Batch, events: Sequence[Mapping[str, Any]]) -> Finding:
    """The part `known` of the leak test."""
    found = opened_reads(folder, batch, events)
    if not found:
        return Finding("known", OK, "no text is known from a read of this set that was opened")
    return Finding("known", LEAK, f"{_line(found, batch)}; whoever may have seen an opened key cannot rate these")


def _line(found: Sequence[Opened], batch: Batch) -> str:
    shown = "; ".join(f"{one.subject}, {len(one.items)} of {len(batch)} {batch.kind}" for one in found)
    return f"texts known from an opened read: {shown}"


def known_warnings(
    folder: BlindFolder, batch: Batch, ratings: Mapping[str, Ratings], events: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What a reader of the result has to know: people rated texts after a key that tells of them was opened."""
    people = {rater for rater, one in ratings.items() if one.by != JUDGE}
    rated = [one for one in folder.events([dict(one) for one in events], RATED) if one.get("rater") in people]
    if not rated:
        return []
    last = max(place for place, one in enumerate(events) if dict(one) == rated[-1])
    found = opened_reads(folder, batch, events[:last])
    if not found:
        return []
    both = sorted(people & {rater for one in found for rater in one.raters})
    names = ", ".join(f"`{name}`" for name in both)
    return [_line(found, batch) + (f"; {names} rated both" if both else "; other raters than of this one rated it")]


def check_rater_is_blind(
    folder: BlindFolder, batch: Batch, rater: str, ratings: Mapping[str, Ratings], events: Sequence[Mapping[str, Any]]
) -> None:
    """Raise `GateError` if `rater`, a person, rated an opened read that has texts of this batch.

    Not if this read was begun under that name already: raters are never exchanged, and the result says it.
    """
    if rater in ratings:
        return
    for one in opened_reads(folder, batch, events):
        if rater.casefold() in {name.casefold() for name in one.raters}:
            raise GateError(
                f"rater `{rater}` may have seen the opened key of {one.subject}; another rater is needed",
                hint=f"{len(one.items)} of {len(batch)} {batch.kind} here have a text of that read.",
            )
