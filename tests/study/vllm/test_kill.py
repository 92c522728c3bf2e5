"""One arm with vLLM as the real command line runs it: its engine killed, its runner killed, and then to the end.

The engine decodes two rollouts at a time, so that a stage takes seconds and a kill falls into the middle of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ablation.plan.lock import lock_plan, verify_lock
from ablation.rollouts.inflight import rollouts_on_disk
from ablation.rollouts.journal_chain import check_journal
from ablation.rollouts.store import read_part, read_stage
from ablation.rollouts.values import NEUTRAL
from tests.study.mini import ablation, command, environment, mini_tree, write_plan

pytestmark = pytest.mark.slow

ARM = ("run", "--arm", "XK")
PATIENCE = 900.0


def tree() -> dict:
    found = mini_tree()
    found["problems"]["cells"] = {effort: ids[:2] for effort, ids in found["problems"]["cells"].items()}
    found["sampling"] |= {"max_tokens": 64, "batch_rollouts": 5}
    found["training"] |= {"updates": 1, "rollouts_per_cell": 4}
    settings = {"kv_cache_gb": 0.05, "eager": True, "sequences": 2, "batch_tokens": 1024}
    found["policy"] = {"backend": "vllm", "threads": 1, "vllm": settings}
    return found


class Runner:
    """The command line at work in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output.txt"
        self._file = self.output.open("w")
        self.process = subprocess.Popen(command(*ARM), cwd=folder, env=environment(), stdout=self._file, stderr=self._file)
        self.engine: int | None = None

    def until(self, what) -> None:
        """Wait for `what`, quick enough for a moment within a stage."""
        end = time.monotonic() + PATIENCE
        while not what():
            assert self.process.poll() is None, self.output.read_text()[-3000:]
            assert time.monotonic() < end, self.output.read_text()[-3000:]
            time.sleep(0.002)
        self.engine = next(pid for pid in children(self.process.pid) if is_engine(pid))

    def kill(self, pid: int) -> int:
        os.kill(pid, signal.SIGKILL)
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(PATIENCE)
        self._file.close()
        return code

    def said(self) -> str:
        return " ".join(self.output.read_text().split())


def children(pid: int) -> list[int]:
    found = [one for threads in Path(f"/proc/{pid}/task").glob("*/children") for one in threads.read_text().split()]
    return [int(one) for one in found]


def is_engine(pid: int) -> bool:
    return b"engine_process" in Path(f"/proc/{pid}/cmdline").read_bytes()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def lines(stage: Path) -> dict[tuple, dict]:
    """What is in flight, by rollout; a line without its end is nothing."""
    found = {}
    for log in (stage / "inflight").glob("*.jsonl"):
        for line in log.read_bytes().splitlines(keepends=True)[1:]:
            if line.endswith(b"\n"):
                one = json.loads(line)
                found[one["problem"], one["effort"], one["index"]] = one
    return found


def rows(stage: Path) -> dict[tuple, object]:
    return {(one.problem, one.effort, one.index): one for part in sorted(stage.glob("part-*")) for one in read_part(part)}


def same(line: dict, row) -> bool:
    import base64

    import numpy as np

    kinds = {"token_ids": "<i4", "logprobs": "<f8", "top_entropy": "<f8", "top_mass": "<f8"}
    return all(
        np.array_equal(np.frombuffer(base64.b64decode(line[name]), kind), np.array(getattr(row, name), kind))
        for name, kind in kinds.items()
    )


def test_a_killed_engine_and_a_killed_runner_cost_no_rollout_that_had_ended(tmp_path):
    plan = write_plan(tmp_path, tree())
    lock_plan(plan)
    run = tmp_path / "runs" / "mini"
    sweep, update, readout = (run / "main" / one for one in ("start/sweep", "XK/update-1", "XK/readout"))

    # The engine is killed in the middle of the sweep.
    first = Runner(tmp_path)
    first.until(lambda: len(lines(sweep)) >= 2 and rollouts_on_disk(sweep) >= 7)
    assert first.kill(first.engine) == 6
    said = first.said()
    assert said.count("was killed by SIGKILL") == 1
    assert "while sampling" in said
    assert "the same command goes on from here" in said
    assert "Traceback" not in said
    flying, written = lines(sweep), {path: path.read_bytes() for path in sweep.glob("part-*")}
    kept = rollouts_on_disk(sweep)
    assert kept == len(flying) + len(rows(sweep)) >= 7
    status = ablation(tmp_path, "status", "--json")
    assert json.loads(status.stdout)["sweeps"]["main"] == "partly"
    assert json.loads(status.stdout)["begun"] == {"main/start/sweep": kept}
    audit = ablation(tmp_path, "audit", "runs/mini")
    assert audit.returncode == 6, audit.stdout + audit.stderr
    assert "main/start/sweep: was begun and is not complete" in " ".join((audit.stdout + audit.stderr).split())

    # The same command goes on; its runner is killed in the middle of the update.
    second = Runner(tmp_path)
    second.until(lambda: len(lines(update)) >= 2)
    engine = second.engine
    assert second.kill(second.process.pid) == -signal.SIGKILL
    end = time.monotonic() + 30
    while is_there(engine):
        assert time.monotonic() < end, "the engine outlives its runner"
        time.sleep(0.01)
    assert all(path.read_bytes() == data for path, data in written.items())
    swept = rows(sweep)
    assert all(same(line, swept[key]) for key, line in flying.items())
    assert len(swept) == len(read_stage(sweep)) == 24
    flying = lines(update)
    assert len(flying) >= 2

    # And to the end.
    last = Runner(tmp_path)
    assert last.ended() == 0, last.said()
    updated = rows(update)
    assert all(same(line, updated[key]) for key, line in flying.items())
    assert not list(run.rglob("inflight"))
    state = check_journal(run, verify_lock(plan).digest)
    parts = [(event["stage"], event["part"]) for event in state.events if event["event"] == "part_written"]
    assert len(set(parts)) == len(parts) == 3 * 5
    for stage in (sweep, update, readout):
        found = read_stage(stage)
        assert len(found) == 24
        (values,) = map(json.loads, found.sampling.values)
        assert values.items() >= NEUTRAL.items()
        assert [one.stop_id for one in found.rollouts()] == [
            one.token_ids[-1] if one.finish_reason == "stop" else None for one in found.rollouts()
        ]
    audit = ablation(tmp_path, "audit", "runs/mini")
    assert "is not what" not in audit.stdout
    assert audit.returncode in (0, 6), audit.stdout + audit.stderr  # the plan's other arm was not run
