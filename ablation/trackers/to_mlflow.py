"""MLflow: one experiment a study, one run a series."""

from __future__ import annotations

import os
from pathlib import Path

# A tracker waits for no server for minutes; whoever set them means it.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
# Folders of runs are what people have, whatever MLflow would rather have.
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.tracking import MlflowClient

from ablation.trackers.base import Known, Series
from ablation.trackers.metrics import Values
from ablation.trackers.points import Point

KEY = "ablation.series"
"""Tag of a run that names its series."""
MOST = 900
"""Metrics in one call; MLflow takes 1,000."""


def open_tracker(place: str | None, study: str) -> MLflow:
    return MLflow(place, study)


class MLflow:
    """Written through the client, which adds nothing of its own: no user, no host, no source, no system metrics."""

    def __init__(self, uri: str | None, study: str) -> None:
        uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or Path("mlruns").absolute().as_uri()
        self._client, self._run = MlflowClient(tracking_uri=uri), ""
        found = self._client.get_experiment_by_name(study)
        self._experiment = self._client.create_experiment(study) if found is None else found.experiment_id
        self.where = f"MLflow, experiment {study}"

    def holds(self, series: Series) -> Known:
        found = self._find(series)
        if found is None:
            return set()
        history = self._client.get_metric_history
        return {(name, metric.step) for name in found.data.metrics for metric in history(found.info.run_id, name)}

    def begin(self, series: Series) -> Known:
        found = self._find(series)
        if found is None:
            found = self._client.create_run(self._experiment, tags={KEY: series.key}, run_name=series.name)
            params = [Param(name, str(value)) for name, value in sorted(series.about.items())]
            self._client.log_batch(found.info.run_id, params=params)
        elif found.info.status != "RUNNING":
            self._client.update_run(found.info.run_id, status="RUNNING")
        self._run = found.info.run_id
        return set()

    def _find(self, series: Series) -> Run | None:
        return next(iter(self._client.search_runs([self._experiment], f"tags.`{KEY}` = '{series.key}'", max_results=1)), None)

    def send(self, point: Point, values: Values) -> None:
        when = round(point.time * 1000)
        metrics = [Metric(name, value, when, point.step) for name, value in sorted(values.items())]
        for first in range(0, len(metrics), MOST):
            self._client.log_batch(self._run, metrics=metrics[first : first + MOST])

    def end(self, how: str | None) -> None:
        if how is not None:
            self._client.log_batch(self._run, tags=[RunTag("ablation.ended", how)])
            self._client.set_terminated(self._run, "FINISHED")
