"""TensorBoard: event files in DIR/FAMILY/ARM."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from ablation.trackers.base import Known, Series
from ablation.trackers.metrics import Values
from ablation.trackers.points import Point

PREFIX = "events.out.tfevents."
"""TensorBoard reads files with this in their name, in the order of their names."""


def open_tracker(place: str | None, study: str) -> TensorBoard:
    return TensorBoard(Path(place if place is not None else f"tensorboard/{study}").absolute())


class TensorBoard:
    """One event a point, so a kill leaves it whole or leaves it out. The files are the memory of what was written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.where = folder, f"tensorboard --logdir {folder}"
        self._path: Path | None = None

    def holds(self, series: Series) -> Known:
        known: Known = set()
        for path in sorted((self.folder / series.name).glob(f"{PREFIX}*")):
            # It ends where a killed writer left half a record.
            for event in LegacyEventFileLoader(str(path)).Load():
                known |= {(value.tag, event.step) for value in event.summary.value}
        return known

    def begin(self, series: Series) -> Known:
        own = self.folder / series.name
        own.mkdir(parents=True, exist_ok=True)
        # Without the host's name, which TensorBoard's own writer puts there.
        self._path = own / f"{PREFIX}{time.time_ns() // 1000:017d}.{os.getpid()}"
        return set()

    def send(self, point: Point, values: Values) -> None:
        assert self._path is not None
        events = [] if self._path.exists() else [Event(wall_time=point.time, file_version="brain.Event:2")]
        told = [Summary.Value(tag=name, simple_value=value) for name, value in sorted(values.items())]
        events.append(Event(wall_time=point.time, step=point.step, summary=Summary(value=told)))
        with self._path.open("ab") as file:
            writer = RecordWriter(file)
            for event in events:
                writer.write(event.SerializeToString())
            file.flush()

    def end(self, how: str | None) -> None:
        self._path = None
