"""trackio: one project a study, one run a series."""

from __future__ import annotations

import os

import trackio
from trackio import utils
from trackio.sqlite_storage import SQLiteStorage

from ablation.trackers.base import Known, Series
from ablation.trackers.metrics import Values
from ablation.trackers.points import Point

_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
"""With one of them trackio keeps nothing on this machine that could be looked at."""


def open_tracker(place: str | None, study: str) -> Trackio:
    return Trackio(place if place is not None else study)


class Trackio:
    """On this machine, unless trackio's own TRACKIO_SPACE_ID or TRACKIO_SERVER_URL says otherwise."""

    def __init__(self, project: str) -> None:
        self._project, self._run = project, None  # type: tuple[str, trackio.Run | None]
        self._series: Series | None = None
        self._sent: Known = set()
        self.where = f"trackio show --project {project}"

    def holds(self, series: Series) -> Known:
        rows = SQLiteStorage.get_logs(self._project, run=_name(series))
        return {(name, row["step"]) for row in rows for name in row if name not in ("step", "timestamp")}

    def begin(self, series: Series) -> Known:
        self._series, self._sent = series, set()
        self._run = trackio.init(
            project=self._project,
            name=_name(series),
            group=series.name.partition("/")[0],
            config=series.about,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return set()

    def send(self, point: Point, values: Values) -> None:
        assert self._run is not None
        self._run.log(dict(values), step=point.step)
        self._sent |= {(name, point.step) for name in values}

    def end(self, how: str | None) -> None:
        if self._run is not None:
            trackio.finish()  # waits until all is written
            self._run = None
            self._check_kept()

    def _check_kept(self) -> None:
        """Raise `RuntimeError` if not all that was sent is there: trackio says nothing of a folder that it cannot write."""
        if self._series is None or any(map(os.environ.get, _ELSEWHERE)):
            return
        lost = self._sent - self.holds(self._series)
        self._sent = set()
        if lost:
            raise RuntimeError(f"trackio did not keep {len(lost)} of the numbers; can {utils.TRACKIO_DIR} be written?")


def _name(series: Series) -> str:
    """Two plans of one name differ in their digest."""
    return f"{series.name} {series.digest[:8]}"
