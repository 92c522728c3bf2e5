"""A study whose model is divided over processes: killed, stopped under torchrun, gone on with there, audited as any other."""

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ablation.rollouts.journal_chain import read_journal

from .mini import ablation, command, environment, mini_tree, write_plan

pytestmark = pytest.mark.slow

IMPATIENT = """
import sys
from ablation.policy.sharded import __main__, pulse
pulse.SILENT_SECONDS = 5.0
sys.exit(__main__.main())
"""


def small_tree() -> dict:
    """One arm, eight cells, few and short rollouts."""
    tree = mini_tree()
    tree["arms"] = {"C": tree["arms"]["C"]}
    tree["sampling"] |= {"max_tokens": 16, "batch_rollouts": 24}
    tree["training"] |= {"rollouts_per_cell": 2}
    return tree


def children(pid: int, wanted: Callable[[Path], bool]) -> list[int]:
    """Of a process, those whose folder in /proc is `wanted`."""
    found = [child for threads in Path(f"/proc/{pid}/task").glob("*/children") for child in threads.read_text().split()]
    return [int(child) for child in found if wanted(Path("/proc", child))]


def is_rank(process: Path) -> bool:
    """Whether it holds the model for a command."""
    return b"spawn_main" in (process / "cmdline").read_bytes()


def is_second(process: Path) -> bool:
    """Whether it is the second of torchrun's."""
    return b"\0RANK=1\0" in b"\0" + (process / "environ").read_bytes()


def wait_for(path: Path, process: subprocess.Popen) -> None:
    until = time.monotonic() + 600
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until, process.stderr.read()
        time.sleep(0.05)


def torchrun(*what: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *what, "run", "--all"]


def test_a_run_in_two_processes_that_was_killed_and_stopped_goes_on_under_torchrun_and_its_audit_agrees(tmp_path):
    plan = write_plan(tmp_path, small_tree())
    assert ablation(tmp_path, "plan", "lock", str(plan)).returncode == 0
    run = tmp_path / "runs" / "mini"
    arguments = ["run", "--all", "--processes", "2"]
    running = subprocess.Popen(command(*arguments), cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment())
    wait_for(run / "main" / "start" / "sweep" / "stage.json", running)
    ranks = children(running.pid, is_rank)
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    _, told = running.communicate(timeout=120)
    assert running.returncode == 6, told
    killed = f"process 1 of 2 (pid {ranks[1]}) was killed by SIGKILL (the system does so when memory runs out) while "
    assert killed in " ".join(told.split())
    assert "Nothing that was written is lost: the same command goes on from here." in " ".join(told.split())
    assert "Traceback" not in told
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)

    script = tmp_path / "impatient.py"
    script.write_text(IMPATIENT)
    running = subprocess.Popen(
        torchrun(str(script)), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    )
    wait_for(run / "main" / "C" / "update-1" / "stage.json", running)
    (stopped,) = children(running.pid, is_second)
    os.kill(stopped, signal.SIGSTOP)
    until, told = time.monotonic() + 60, ""
    while "the same command goes on" not in told:
        line = running.stderr.readline()
        assert line and time.monotonic() < until, told
        told += line
    said = rf"process 1 of 2 \({re.escape(platform.node())}:{stopped}\) gave no sign of life for [5-9] s .* while .*; all of them end"
    assert re.search(said, " ".join(told.split())), told
    assert "Traceback" not in told
    os.kill(stopped, signal.SIGKILL)  # torchrun would do so in half a minute
    running.communicate(timeout=60)
    assert running.returncode == 1

    again = torchrun("-m", "ablation.policy.sharded")
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, env=environment(), check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    audit = ablation(tmp_path, "audit")
    assert audit.returncode == 0 and "AGREES" in audit.stdout, audit.stdout
    loaded = [event for event in read_journal(run / "journal.jsonl") if event["event"] == "model_loaded"]
    assert [event["processes"] for event in loaded] == [{"count": 2, "backend": "gloo", "devices": ["cpu", "cpu"]}] * 3

    (run / "main" / "C" / "readout" / "stage.json").unlink()
    other = ablation(tmp_path, "run", "--arm", "C")
    assert other.returncode == 3 and "this run began with another engine: processes 2 -> " in other.stderr, other.stderr
