"""trackio: one project a study, one run a series."""

from __future__ import annotations

import trackio
from trackio.sqlite_storage import SQLiteStorage

from ablation.trackers.base import Known, Series
from ablation.trackers.metrics import Values
from ablation.trackers.points import Point


def open_tracker(place: str | None, study: str) -> Trackio:
    return Trackio(place if place is not None else study)


class Trackio:
    """On this machine, unless trackio's own TRACKIO_SPACE_ID or TRACKIO_SERVER_URL says otherwise."""

    def __init__(self, project: str) -> None:
        self._project, self._run = project, None  # type: tuple[str, trackio.Run | None]
        self.where = f"trackio show --project {project}"

    def holds(self, series: Series) -> Known:
        rows = SQLiteStorage.get_logs(self._project, run=_name(series))
        return {(name, row["step"]) for row in rows for name in row if name not in ("step", "timestamp")}

    def begin(self, series: Series) -> Known:
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

    def end(self, how: str | None) -> None:
        if self._run is not None:
            trackio.finish()  # waits until all is written
            self._run = None


def _name(series: Series) -> str:
    """Two plans of one name differ in their digest."""
    return f"{series.name} {series.digest[:8]}"
