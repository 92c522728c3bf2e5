"""How far a blinded read is: sealed, who has rated what, opened. Everything is checked against the journal as it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablation.blind.batch import Batch, read_batch
from ablation.blind.build import settings_of
from ablation.blind.ratings import JUDGE, Ratings, all_ratings
from ablation.errors import IncompleteError, IntegrityError
from ablation.plan.model import Plan
from ablation.plan.phase2 import BlindedRead, SafetySet
from ablation.rollouts.blind_record import UNSEALED, BlindFolder, left_raters, untold_of


@dataclass(frozen=True)
class ReadState:
    """A blinded read as it is on disk, whole."""

    folder: BlindFolder
    settings: BlindedRead | SafetySet
    batch: Batch
    sealed: dict[str, Any]
    """The journal's `blind_sealed` event."""
    ratings: dict[str, Ratings]
    unsealed: dict[str, Any] | None
    """The newest `blind_unsealed` event, None while the key is sealed."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Rater who began -> the deviation by which the rest of their ratings is not waited for."""

    @property
    def commitment(self) -> str:
        """SHA-256 of the key file."""
        return self.sealed["key_sha256"]

    def orders(self, by: str | None) -> tuple[str, ...]:
        """In which orders an item is asked of a rater of that kind."""
        both = isinstance(self.settings, BlindedRead) and self.settings.both_orders and by == JUDGE
        return ("XY", "YX") if both else ("XY",)

    def open(self, rater: str, by: str | None = None) -> list[tuple[int, str]]:
        """(item, order) that `rater` has still to be asked, in order. `by`: how, if nothing was rated yet."""
        one = self.ratings.get(rater)
        return [
            (item.number, order)
            for item in self.batch.items
            for order in self.orders(one.by if one is not None and one.by else by)
            if not self._done(one, item.number, order)
        ]

    def _done(self, one: Ratings | None, item: int, order: str) -> bool:
        last = None if one is None else one.final(item, order)
        return last is not None and (last.values is not None or last.attempt > self.settings.retries)

    @property
    def who_left(self) -> list[str]:
        """A line for each rater who left before all was rated."""
        lines = []
        for rater, number in self.left.items():
            open_ = len({item for item, _ in self.open(rater)})
            if open_:
                rated = f"{len(self.batch) - open_} of {len(self.batch)} {self.batch.kind}"
                lines.append(
                    f"`{rater}` left after {rated} (deviation {number}): what they rated counts, and the rest is for the "
                    "remaining raters alone"
                )
        return lines

    @property
    def missing(self) -> list[str]:
        """What has to come before the key may be opened; empty if all is in."""
        lines = []
        for rater in self.ratings:
            left = () if rater in self.left else self.open(rater)
            if left:
                items = sorted({item for item, _ in left})
                shown = ", ".join(map(str, items[:10])) + (f" and {len(items) - 10} more" if len(items) > 10 else "")
                lines.append(f"`{rater}` has still to rate {shown}")
        away = self.settings.raters - len(self.ratings)
        if away > 0:
            lines.append(f"{away} of {self.settings.raters} raters {'has' if away == 1 else 'have'} not begun")
        return lines


def read_state(folder: BlindFolder, plan: Plan, events: Sequence[dict[str, Any]]) -> ReadState:
    """The read of `folder`. `events`: of the run's journal, whose chain holds.

    Raises:
        IncompleteError: nothing was made yet.
        IntegrityError: a file is not what the journal tells of, a rating came after the key was opened, or a line is no rating.
    """
    settings = settings_of(plan, folder.name)
    lines = untold_of(folder, events)
    if lines:
        raise IntegrityError(f"{folder.run.journal}: {lines[0]}", hint="Put the file back from a copy.")
    sealed = folder.sealing(events)
    if not folder.batch.is_file() or sealed is None:
        raise IncompleteError(
            f"{folder.batch}: there is no such batch yet",
            hint=f"`ablation blind pairs {folder.name} --subject {folder.subject}` makes it.",
        )
    batch = read_batch(folder.batch)
    if batch.kind != folder.kind:
        raise IntegrityError(f"{folder.batch}: holds {batch.kind}")
    ratings = all_ratings(folder, batch, events)
    if len(ratings) > settings.raters:
        raise IntegrityError(f"{folder.ratings}: has {len(ratings)} raters, the plan asks for {settings.raters}")
    opened = folder.events(events, UNSEALED)
    left = {rater: number for rater, number in left_raters(folder, events).items() if rater in ratings}
    state = ReadState(folder, settings, batch, sealed, ratings, opened[-1] if opened else None, left)
    if opened and state.missing:
        raise IntegrityError(f"{folder.root}: was unsealed, but {state.missing[0]}")
    return state
