"""Processes that die, hang or outlive their runner: noticed in bounded time, ended all, said in one error."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from ablation.errors import IntegrityError, ProcessesFailed, UsageError
from ablation.policy.memory import TooSmall
from ablation.policy.sharded.group import need_devices
from ablation.policy.sharded.policy import ShardedPolicy

from .scenario import RATE, Case, arguments, make_folders, make_rows

ROOT = Path(__file__).parents[3]
RUNNER = """
import sys, time
from pathlib import Path
from ablation.policy.sharded.policy import ShardedPolicy
from tests.policy.sharded.scenario import Case, arguments
if __name__ == "__main__":
    policy = ShardedPolicy(2, *arguments(Case(), Path(sys.argv[1])))
    print(*policy.group.pids, flush=True)
    time.sleep(600)
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_folders(folder)
    return folder


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """What processes leave in the temporary folder is left here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def gone(pids: list[int], seconds: float) -> bool:
    """Whether all of them are, within that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(_lives(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_refusals_are_told_and_one_that_hangs_ends_all(models, temporary):
    """One that is killed: tests/study/test_sharded.py."""
    policy = ShardedPolicy(2, *arguments(Case(), models))
    start = policy.adapter_sha256()
    with pytest.raises(IntegrityError, match="no usable adapter: No such file"):
        policy.load(temporary / "nowhere")
    assert policy.update(make_rows(0), RATE).stepped, "they go on after a refusal"
    policy.reset()
    assert policy.adapter_sha256() == start
    policy.group.silent_seconds = 4.0
    pids = policy.group.pids
    os.kill(pids[1], signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(
        ProcessesFailed,
        match=rf"process 1 of 2 \(pid {pids[1]}\) gave no sign of life for \d+ s \(it is stopped or frozen\) while scoring; all",
    ) as caught:
        policy.score(make_rows(0))
    assert time.monotonic() - began < 60
    log = Path(caught.value.hint.split(" is in ")[1].removesuffix("."))
    assert caught.value.hint.startswith("Nothing that was written is lost: the same command goes on from here.") and log.is_file()
    assert gone(pids, 1.0)
    with pytest.raises(ProcessesFailed, match="were ended"):
        policy.adapter_sha256()
    policy.close()


def test_a_model_that_cannot_be_loaded_is_one_error_and_leaves_nothing(models, temporary):
    plan, base, adapter, *rest = arguments(Case("qwen3"), models)
    broken = temporary / "base"
    broken.mkdir()
    for file in base.iterdir():
        if file.name != "model-00002-of-00002.safetensors" and "00003" not in file.name:
            os.link(file, broken / file.name)
    before = set(temporary.iterdir())
    with pytest.raises(UsageError, match=r"model.base: .*: no usable model: No such file or directory: .*00003-of"):
        ShardedPolicy(2, plan, broken, adapter, *rest)
    assert set(temporary.iterdir()) == before


def test_processes_end_with_their_runner(models, temporary):
    """Also one that is stopped."""
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(models)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
    )
    pids = [int(pid) for pid in runner.stdout.readline().split()]
    assert len(pids) == 2 and all(map(_lives, pids))
    if sys.platform == "linux":
        os.kill(pids[0], signal.SIGSTOP)
    runner.kill()
    runner.wait()
    assert gone(pids, 10.0)


def test_each_process_needs_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    need_devices(2)
    with pytest.raises(TooSmall, match="--processes 3: each process needs a GPU of its own; this one sees 2"):
        need_devices(3)


def test_processes_that_memory_cannot_hold_are_not_started(monkeypatch):
    """0.6 GB each: 10 of them are 6 GB."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1_000_000, "SC_PAGE_SIZE": 4096}.__getitem__)  # 4.1 GB
    need_devices(6)
    with pytest.raises(TooSmall, match="--processes 10: without a model they take 6 GB; this machine has 4"):
        need_devices(10)
