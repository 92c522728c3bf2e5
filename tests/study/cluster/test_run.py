"""A study on a cluster whose workers and nodes are killed ends with the bytes of a serial run."""

import json
from collections import Counter

import pytest

from ..mini import contents
from .conftest import Runs, kill, worker_of

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


def assert_equal_runs(runs: Runs, serial) -> None:
    expected, found = contents(serial / "runs" / "mini"), contents(runs.run)
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []


def assert_nothing_twice(runs: Runs) -> None:
    parts = Counter((event["stage"], event["part"]) for event in runs.events("part_written"))
    assert parts and set(parts.values()) == {1}


def test_a_worker_is_killed_and_the_run_ends_with_the_bytes_of_a_serial_one(runs, serial):
    process = runs.start("--all", "--json")
    part = runs.wait_for(lambda one: one["event"] == "part_written" and one["stage"] == "main/XK/update-1", process)
    pid, _ = worker_of(part)
    kill(pid)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert_equal_runs(runs, serial)
    assert_nothing_twice(runs)
    [lost] = runs.events("worker_lost")
    assert worker_of(lost)[0] == pid and lost["unit"] == "main/XK: updates 1 to 2" and lost["why"] == "WorkerCrashedError"
    assert "lost" in output and "what it delivered is kept" in output

    joined = runs.events("cluster_joined")[0]
    assert (joined["cpus"], joined["gpus"], joined["places"], len(joined["nodes"])) == (1, 0, 2, 3)
    loaded = {event["worker"] for event in runs.events("model_loaded")}
    made = {event["worker"] for event in runs.events("part_written", "update_trained", "checkpoint_saved")}
    assert made <= loaded and len({worker_of({"worker": one})[1] for one in made}) == 2  # both nodes worked
    times = [event["time"] for event in runs.events()]
    assert times == sorted(times)
    marks = [
        [
            (one.get("stage"), one.get("use"), one.get("set"))  # None: the run itself
            for one in map(json.loads, (folder / "runs/ledger.jsonl").read_text().splitlines())
        ]
        for folder in (runs.folder, serial)
    ]
    assert sorted(marks[0], key=str) == sorted(marks[1], key=str)
