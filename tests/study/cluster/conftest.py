"""A Ray cluster of several nodes on this machine, and the study that runs on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ablation.plan.lock import lock_plan

from ..mini import ROOT, command, environment, mini_tree, write_plan

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
}
SYSTEM = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 6}
"""A node that is gone is noticed within seconds."""
STORE = 100_000_000


def small_tree() -> dict:
    """Two arms, three cells, two updates of at most two batches each."""
    tree = mini_tree()
    tree["problems"]["cells"] = {effort: ids[:1] for effort, ids in tree["problems"]["cells"].items()}
    tree["sampling"] |= {"max_tokens": 48, "batch_rollouts": 2}
    tree["training"] |= {"rollouts_per_cell": 2}
    return tree


class Silent:
    """A reporter that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, title, rollouts, done, cap): ...

    def progress(self, done, tokens): ...

    def stage_done(self, seconds, tokens): ...

    def say(self, message):
        self.said.append(message)


class Runs:
    """Commands in folders with one locked plan, on one cluster."""

    def __init__(self, folder: Path, address: str | None) -> None:
        self.folder, self.address = folder, address
        self.run = folder / "runs" / "mini"

    def start(self, *arguments: str, on: str | None = None) -> subprocess.Popen:
        place = on if on is not None else f"ray={self.address}"
        return subprocess.Popen(
            command("run", *arguments, "--on", place),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment() | SETTINGS,
        )

    def events(self, *kinds: str) -> list[dict]:
        """What the journal has now; a line that is being written is left out."""
        path = self.run / "journal.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in found if not kinds or event["event"] in kinds]

    def wait_for(self, what: Callable[[dict], bool], process: subprocess.Popen) -> dict:
        """The first event that is `what`; `process` is to write it."""
        deadline = time.monotonic() + 300  # a cluster starts in seconds, on a busy machine in minutes
        while time.monotonic() < deadline:
            for event in self.events():
                if what(event):
                    return event
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.02)
        raise AssertionError(self.events()[-5:])


def worker_of(event: dict) -> tuple[int, str]:
    """(process, first digits of the node) of the worker that an event names."""
    found = re.fullmatch(r"[^:]+:(\d+) on node ([0-9a-f]{8})", event["worker"])
    assert found, event
    return int(found[1]), found[2]


@pytest.fixture(scope="session")
def cluster():
    """Head without a processor, so that no work is on it, and two nodes with one each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    before = {name: os.environ.get(name) for name in SETTINGS}
    os.environ |= SETTINGS
    own = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "_system_config": SYSTEM},
    )
    try:
        for _ in range(2):
            own.add_node(num_cpus=1, object_store_memory=STORE)
        yield own
    finally:
        own.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@pytest.fixture(scope="session")
def serial(tmp_path_factory) -> Path:
    """A folder with the locked plan and its run, made without a cluster."""
    folder = tmp_path_factory.mktemp("serial")
    lock_plan(write_plan(folder, small_tree()))
    done = subprocess.run(
        command("run", "--all"), cwd=folder, capture_output=True, text=True, check=False, env=environment() | SETTINGS
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def runs(cluster, serial, tmp_path) -> Runs:
    """A fresh folder with the same locked plan and nothing run."""
    shutil.copytree(serial / "plans", tmp_path / "plans")
    return Runs(tmp_path, cluster.address)


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
