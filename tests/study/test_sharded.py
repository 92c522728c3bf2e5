"""A study whose model is divided over processes: killed in the middle, gone on with under torchrun, audited as any other."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablation.rollouts.journal_chain import read_journal

from .mini import ablation, command, environment, mini_tree, write_plan

pytestmark = pytest.mark.slow


def small_tree() -> dict:
    """One arm, eight cells, few and short rollouts."""
    tree = mini_tree()
    tree["arms"] = {"C": tree["arms"]["C"]}
    tree["sampling"] |= {"max_tokens": 24, "batch_rollouts": 24}
    tree["training"] |= {"rollouts_per_cell": 2}
    return tree


def ranks_of(pid: int) -> list[int]:
    """The processes that hold the model, of a command that runs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def wait_for(path: Path, process: subprocess.Popen) -> None:
    until = time.monotonic() + 600
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until, process.stderr.read()
        time.sleep(0.05)


def test_a_run_in_two_processes_goes_on_under_torchrun_after_one_was_killed_and_its_audit_agrees(tmp_path):
    plan = write_plan(tmp_path, small_tree())
    assert ablation(tmp_path, "plan", "lock", str(plan)).returncode == 0
    run = tmp_path / "runs" / "mini"
    arguments = ["run", "--all", "--processes", "2"]
    running = subprocess.Popen(command(*arguments), cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment())
    wait_for(run / "main" / "C" / "update-1" / "stage.json", running)
    ranks = ranks_of(running.pid)
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    _, told = running.communicate(timeout=120)
    assert running.returncode == 6, told
    assert f"process 1 of 2 (pid {ranks[1]}) was killed by SIGKILL" in " ".join(told.split())
    assert "Nothing that was written is lost: the same command goes on from here." in " ".join(told.split())
    assert "Traceback" not in told
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    again = [*torchrun, "-m", "ablation.policy.sharded", "run", "--all"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, env=environment(), check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    audit = ablation(tmp_path, "audit")
    assert audit.returncode == 0 and "AGREES" in audit.stdout, audit.stdout
    loaded = [event for event in read_journal(run / "journal.jsonl") if event["event"] == "model_loaded"]
    assert [event["processes"] for event in loaded] == [{"count": 2, "backend": "gloo", "devices": ["cpu", "cpu"]}] * 2

    (run / "main" / "C" / "readout" / "stage.json").unlink()
    other = ablation(tmp_path, "run", "--arm", "C")
    assert other.returncode == 3 and "this run began with another engine: processes 2 -> " in other.stderr, other.stderr
