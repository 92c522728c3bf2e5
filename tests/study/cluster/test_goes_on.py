"""A killed driver, a lost node, Ctrl-C: the run goes on from what is on disk, with a cluster or without one."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ablation.plan.lock import verify_lock
from ablation.study.state import run_state

from ..mini import ablation
from .conftest import STORE, Runs, kill, worker_of
from .test_run import assert_equal_runs, assert_nothing_twice

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


def comes_true(what: Callable[[], bool]) -> bool:
    """Whether it is so within two minutes, which is enough on a busy machine."""
    deadline = time.monotonic() + 120
    while not (found := what()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_killed_driver_and_then_a_lost_node(runs, serial, cluster):
    """The driver is killed in an arm; a serial run does the other arm; a cluster that loses a node does the rest."""
    process = runs.start("--arm", "XK")
    part = runs.wait_for(lambda one: one["event"] == "part_written" and one["stage"] == "main/XK/update-1", process)
    kill(process.pid)
    process.communicate()
    assert comes_true(lambda: is_gone(worker_of(part)[0]))  # no worker outlives its driver
    before = len(runs.events("part_written"))

    alone = ablation(runs.folder, "run", "--arm", "C")
    assert alone.returncode == 0, alone.stderr
    assert [one for one in runs.events("part_written")[before:] if one["stage"].endswith("start/sweep")] == []

    process = runs.start("--all")
    newest = len(runs.events())
    part = runs.wait_for(lambda one: one["event"] == "part_written" and one["seq"] >= newest, process)
    name = worker_of(part)[1]
    node = next(one for one in cluster.list_all_nodes() if one.node_id.startswith(name))
    cluster.remove_node(node, allow_graceful=False)
    output, _ = process.communicate(timeout=300)
    cluster.add_node(num_cpus=1, object_store_memory=STORE)
    assert process.returncode == 0, output
    assert [worker_of(lost)[1] for lost in runs.events("worker_lost")] == [name]
    assert_equal_runs(runs, serial)
    assert_nothing_twice(runs)
    audited = ablation(runs.folder, "audit")
    assert audited.returncode == 0 and "AGREES" in audited.stdout, audited.stdout + audited.stderr


def test_ctrl_c_ends_all_processes_and_says_how_to_go_on(serial, tmp_path):
    """With a cluster of its own; while it works, the run can be looked at."""
    shutil.copytree(serial / "plans", tmp_path / "plans")
    own = Runs(tmp_path, None)
    process = own.start("--all", on="ray")  # three arms, two of which wait for the sweep
    part = own.wait_for(lambda one: one["event"] == "part_written", process)
    assert comes_true((own.run / part["stage"] / part["part"]).is_file)  # its event goes first
    assert _shows_the_sweep(own) or _shows_the_sweep(own)  # the first may be of two moments: the sweep ends in between
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "stopped; nothing that was written is lost. Go on with: ablation run --all --on ray" in output
    assert "Traceback" not in output
    assert comes_true(lambda: is_gone(worker_of(part)[0]))
    assert comes_true(lambda: not _children(tmp_path)), _children(tmp_path)


def _shows_the_sweep(runs: Runs) -> bool:
    """Whether the state counts what is there of the sweep's 6 rollouts, after its first batch of 2."""
    state = run_state(verify_lock(runs.folder / "plans" / "mini.yaml").plan, runs.run)
    return state.sweeps["main"] == "yes" or 2 <= state.begun.get("main/start/sweep", 0) <= 6


def _children(folder: Path) -> list[Path]:
    return [one for one in Path("/proc").glob("[0-9]*/environ") if str(folder) in _environment(one)]


def _environment(path: Path) -> str:
    """PWD and the like of a process: those that the command in the folder started have its path there."""
    try:
        return os.readlink(path.parent / "cwd") + path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
