"""Telling a tracker each point of a run once, however often it is begun again."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ablation.files import sha256_bytes
from ablation.plan.locate import cache_folder
from ablation.trackers.base import Known, Target, Tracker, series_of
from ablation.trackers.metrics import Values
from ablation.trackers.points import Point, Source

EVERY = 1.0
"""Seconds between two looks at the journal."""
RETRY = (2.0, 60.0)
"""Seconds until a tracker that failed is tried again: at first, and at most (it doubles)."""


class Follower:
    """Sends what a run has to tell to one tracker, in the order of the run.

    What the tracker holds already is asked for, and is never sent again.
    """

    def __init__(self, source: Source, digest: str, tracker: Tracker) -> None:
        self.source, self._digest, self._tracker = source, digest, tracker
        self.sent = 0
        """Points."""
        self._told: set[tuple[str, str]] = set()
        self._series: str | None = None
        self._known: dict[str, Known] = {}

    def catch_up(self) -> int:
        """Send all that is there and was not sent; how many points. Raises whatever the tracker raises: call it again later."""
        before = self.sent
        self.source.events.read()
        try:
            for point in self.source.points(self._told):
                series = series_of(self.source.plan, self._digest, point.series)
                if point.series not in self._known:
                    self._known[point.series] = self._tracker.holds(series)
                if self._news(point) and point.series != self._series:
                    self.pause()
                    self._known[point.series] |= self._tracker.begin(series)
                    self._series = point.series
                if values := self._news(point):
                    self._tracker.send(point, values)
                    self.sent += 1
                self._told.add((point.series, point.name))
        except Exception:
            with suppress(Exception):  # what half a series left open
                self._tracker.end(None)
            self._series = None
            self._known = {}  # what became of a point is for the tracker to say
            raise
        return self.sent - before

    def _news(self, point: Point) -> Values:
        """What of the point is not held yet."""
        known = self._known[point.series]
        if (point.group, point.step) in known:
            return {}
        return {name: value for name, value in point.values.items() if (name, point.step) not in known}

    def pause(self) -> None:
        """End the open series, as far as it has come."""
        if self._series is not None:
            series, self._series = self._series, None
            self._tracker.end(self.source.events.ended.get(series))


def follow(follower: Follower, *, wait: Callable[[float], bool], trouble: Callable[[Exception], None]) -> None:
    """Send points as they come until `wait(seconds)` says that the run has ended; then what is left, and end the series.

    A tracker that fails is tried again, ever more rarely. `trouble` is told of every failure; the last one is raised.
    """
    retry, next_try, failed, ended = RETRY[0], 0.0, False, False
    while not ended:
        ended = wait(EVERY)
        if failed and not ended and time.monotonic() < next_try:
            continue
        try:
            follower.catch_up()
            retry, failed = RETRY[0], False
        except Exception as error:
            if ended:
                raise
            trouble(error)
            failed, next_try = True, time.monotonic() + retry
            retry = min(2 * retry, RETRY[1])
    follower.pause()


@contextmanager
def alone(target: Target, digest: str, wait: Callable[[float], bool]) -> Iterator[bool]:
    """Hold what keeps two processes from telling one tracker of one plan at the same time; False if `wait` ended before that."""
    place = target.place or ""
    if target.kind == "tensorboard":
        place = str(Path(place or "tensorboard").absolute())
    folder = cache_folder() / "trackers"
    folder.mkdir(parents=True, exist_ok=True)
    name = sha256_bytes(f"{target.kind}\0{place}\0{digest}".encode())[:24]
    with (folder / f"{name}.lock").open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if wait(EVERY / 2):
                    yield False
                    return
        yield True


_SECRET = re.compile(r"KEY|TOKEN|PASSWORD|SECRET")


def in_words(error: BaseException) -> str:
    """The error in one line, without what its text may hold of passwords and keys."""
    text = " ".join(str(error).split())
    text = re.sub(r"([a-z][a-z0-9+.-]*://)[^/@\s]*@", r"\1", text)
    text = re.sub(r"([?&][^=&\s]+)=[^&\s]+", r"\1=...", text)
    for name, value in os.environ.items():
        if _SECRET.search(name.upper()) and len(value) >= 6:
            text = text.replace(value, "...")
    name = type(error).__name__
    return f"{name}: {text[:300]}" if text else name
