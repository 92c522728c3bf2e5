"""A head that is killed: one error in bounded time, and the run goes on without it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablation.errors import ClusterLost
from ablation.plan.lock import verify_lock
from ablation.study.cluster import head
from ablation.study.state import run_state

from ..mini import environment
from .conftest import SETTINGS, Runs

IMPATIENT = """
from ablation.cli.main import main
from ablation.study.cluster import head
head.GONE_SECONDS = 4.0
main()
"""


def test_a_head_that_answers_is_not_missed_and_one_that_is_gone_is(monkeypatch):
    monkeypatch.setattr(head, "GONE_SECONDS", 0.3)
    monkeypatch.setattr(head, "LOOK_SECONDS", 0.02)
    lost: list[Exception] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with head.head_watched(address, lost.append):
            time.sleep(0.6)
            assert lost == []
            server.close()
            time.sleep(0.6)
        with head.head_watched(address, lost.append):
            time.sleep(0.1)  # nobody is told after the block
        time.sleep(0.4)
    assert [type(one) for one in lost] == [ClusterLost]
    assert f"the head of the Ray cluster, {address}, is gone" in lost[0].message


@pytest.mark.slow
def test_a_command_whose_head_is_killed_says_so_and_keeps_what_it_has(serial, tmp_path):
    pytest.importorskip("ray")
    shutil.copytree(serial / "plans", tmp_path / "plans")
    own = Runs(tmp_path, None)
    process = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, "run", "--arm", "C", "--on", "ray"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment() | SETTINGS,
    )
    own.wait_for(lambda one: one["event"] == "part_written", process)
    began = time.monotonic()
    os.kill(head_of(process.pid), signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 6, output
    assert time.monotonic() - began < 45, "Ray ends it after 60 s"
    assert "is gone: nothing has answered there for 4 s" in " ".join(output.split())
    assert "the same command goes on" in " ".join(output.split())
    assert "Traceback" not in output and "Failed to connect" not in output, output
    state = run_state(verify_lock(tmp_path / "plans" / "mini.yaml").plan, own.run)
    assert state.begun or state.sweeps["main"] == "yes", "what was delivered is there"


def head_of(pid: int) -> int:
    """The process that is the head of the cluster that a command has started."""
    found = [child for threads in Path(f"/proc/{pid}/task").glob("*/children") for child in threads.read_text().split()]
    (head,) = [int(child) for child in found if "gcs_server" in Path(f"/proc/{child}/comm").read_text()]
    return head
