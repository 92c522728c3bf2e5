"""MLflow with a folder as its store, read back by MLflow's client. Skipped where it is not installed."""

import shutil
import socket
import time

import pytest

from ablation.errors import UsageError
from ablation.plan.lock import verify_lock
from ablation.trackers.base import Target
from ablation.trackers.beside import trackers_beside
from ablation.trackers.follow import Follower
from ablation.trackers.points import open_source

from .test_points import RECORD, SERIES

pytest.importorskip("mlflow")


def follower(root, uri: str) -> Follower:
    locked = verify_lock(RECORD / "plan.yaml")
    return Follower(open_source(locked.plan, root), locked.digest, Target("mlflow", uri).open(locked.plan.name))


def histories(uri: str) -> dict[str, dict[str, list[tuple[int, float, int]]]]:
    """Series -> metric -> (step, value, milliseconds) of all that is stored."""
    from mlflow.tracking import MlflowClient

    client, name = MlflowClient(uri), verify_lock(RECORD / "plan.yaml").plan.name
    runs = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    return {
        run.info.run_name: {
            metric: sorted((one.step, one.value, one.timestamp) for one in client.get_metric_history(run.info.run_id, metric))
            for metric in run.data.metrics
        }
        for run in runs
    }


def test_every_number_comes_back_once_however_often_it_is_sent(tmp_path):
    run, uri = tmp_path / "run", (tmp_path / "mlruns").as_uri()
    shutil.copytree(RECORD, run)
    shutil.move(run / "main/N/readout", tmp_path / "readout")
    one = follower(run, uri)
    assert one.catch_up() == 27
    one.pause()
    assert follower(run, uri).catch_up() == 0
    shutil.move(tmp_path / "readout", run / "main/N/readout")
    last = follower(run, uri)
    assert last.catch_up() == 1
    last.pause()
    source = open_source(verify_lock(RECORD / "plan.yaml").plan, RECORD)
    source.events.read()
    wanted: dict = {series: {} for series in SERIES}
    for point in source.points():
        for name, value in point.values.items():
            wanted[point.series].setdefault(name, []).append((point.step, value, round(point.time * 1000)))
    assert histories(uri) == wanted


def test_a_point_that_was_half_sent_is_completed(tmp_path):
    uri = (tmp_path / "mlruns").as_uri()
    follower(RECORD, uri).catch_up()
    whole = histories(uri)
    for path in (tmp_path / "mlruns").glob("*/*/metrics/update/grad_norm"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert follower(RECORD, uri).catch_up() == len(SERIES)
    assert histories(uri) == whole


def test_a_run_tells_nothing_of_who_and_where(tmp_path):
    from mlflow.tracking import MlflowClient

    uri = (tmp_path / "mlruns").as_uri()
    follower(RECORD, uri).catch_up()
    client = MlflowClient(uri)
    (run, *_) = client.search_runs(["0", *(one.experiment_id for one in client.search_experiments())])
    assert set(run.data.tags) <= {"ablation.series", "ablation.ended", "mlflow.runName"}
    assert run.data.params["plan_digest"] == verify_lock(RECORD / "plan.yaml").digest


def test_a_server_that_never_answers_is_refused_in_time(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://me:hunter22@127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        with (
            pytest.raises(UsageError) as refused,
            trackers_beside([Target("mlflow", uri)], verify_lock(RECORD / "plan.yaml"), RECORD, print),
        ):
            pytest.fail("the run began")
    assert time.monotonic() - started < 30
    assert refused.value.message.startswith("--track mlflow: cannot be used: MlflowException: ")
    assert "hunter22" not in refused.value.message
