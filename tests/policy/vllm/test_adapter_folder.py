"""What a killed process leaves is removed by the next one, and nothing of one that lives."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ablation.policy.vllm import adapter_folder as module
from ablation.policy.vllm.adapter_folder import AdapterFolder

HOLDER = """
import sys, time
from pathlib import Path
from ablation.policy.vllm.adapter_folder import AdapterFolder
folder = AdapterFolder(sys.argv[1], Path(sys.argv[2]))
(folder.path / "adapter.bin").write_bytes(b"0" * 1000)
print(folder.path, flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells one start of the machine from another")


@pytest.fixture
def holder(tmp_path):
    """Starts processes that hold a folder each: (process, folder)."""
    started = []

    def start(kind: str) -> tuple[subprocess.Popen, Path]:
        process = subprocess.Popen([sys.executable, "-c", HOLDER, kind, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_what_a_killed_process_left_goes_with_the_next_and_what_a_living_one_has_stays(holder, tmp_path):
    (killed, left), (_, living), (stopped, held) = holder("adapter"), holder("server"), holder("adapter")
    os.kill(stopped.pid, signal.SIGSTOP)
    killed.kill()
    killed.wait()
    assert left.is_dir(), "a kill leaves it"
    others = [tmp_path / name for name in ("ablation-adapter-x1y2z3", "ablation-server-00000000-abc", "somebodys")]
    for other in others:
        other.mkdir()
    with AdapterFolder("server", tmp_path) as own:
        assert sorted(tmp_path.iterdir()) == sorted([own, living, held, *others])
        assert (living / "adapter.bin").stat().st_size == (held / "adapter.bin").stat().st_size == 1000
    assert not own.exists()


def test_a_link_is_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    place = tmp_path / "place"
    place.mkdir()
    (place / f"ablation-adapter-{module._boot()}-abc").symlink_to(kept)
    AdapterFolder("adapter", place).remove()
    assert (kept / "file").exists()


def test_many_that_come_and_go_at_once_take_nothing_from_each_other(tmp_path):
    def come_and_go(_: int) -> None:
        with AdapterFolder("adapter", tmp_path) as folder:
            (folder / "file").touch()
            assert (folder / "file").exists()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, range(400)))
    assert list(tmp_path.iterdir()) == []


def test_without_locks_nothing_of_others_is_removed(tmp_path, monkeypatch, holder):
    killed, left = holder("adapter")
    killed.kill()
    killed.wait()

    def no_locks(descriptor, operation):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", no_locks)
    with AdapterFolder("adapter", tmp_path) as own:
        assert own.is_dir()
        assert left.is_dir()
    assert not own.exists()
