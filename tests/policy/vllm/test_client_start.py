"""An engine's process that does not come to vLLM: where nothing of it is installed, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablation.errors import EngineFailed
from ablation.policy.vllm import client as module
from ablation.policy.vllm.client import EngineClient
from ablation.policy.vllm.messages import EngineSettings
from tests.policy.test_lasting import gone, lives, stop

ROOT = Path(__file__).parents[3]
SETTINGS = EngineSettings("base", "float32", 512, 8, 2048, 1, 1, True, 1, 8, 20)


def without_vllm(monkeypatch, program: str) -> None:
    monkeypatch.setattr(module, "_PROGRAM", program)


def test_a_file_of_the_working_folder_is_no_module_of_the_engine(tmp_path, monkeypatch):
    (tmp_path / "colorsys.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    without_vllm(monkeypatch, "import colorsys; raise SystemExit(5)")
    with pytest.raises(EngineFailed, match="ended with exit code 5 while starting"):
        EngineClient(SETTINGS)


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (36, "signal 36")])
def test_whatever_signal_ends_it_is_said(monkeypatch, number, name):
    without_vllm(monkeypatch, f"import os; os.kill(os.getpid(), {number})")
    with pytest.raises(EngineFailed, match=f"was killed by {name}") as raised:
        EngineClient(SETTINGS)
    log = Path(raised.value.hint.split(" in ")[-1].rstrip("."))
    assert log.is_file()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_whoever_stops_it_is_left_no_folder(tmp_path, monkeypatch, stop):
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    without_vllm(monkeypatch, "import time; time.sleep(600)")

    def stopped(self, doing, told, patience):
        raise stop

    monkeypatch.setattr(EngineClient, "_wait", stopped)
    with pytest.raises(stop):
        EngineClient(SETTINGS)
    assert list(tmp_path.iterdir()) == []


ENDING = """
import os, sys, threading, time
from dataclasses import replace
from pathlib import Path
from ablation.policy.vllm import client
from tests.policy.vllm.test_client_start import SETTINGS
client._PROGRAM = Path(sys.argv[2]).read_text()
started = []
settings = replace(SETTINGS, tensor_parallel=int(sys.argv[1]))
thread = threading.Thread(target=lambda: started.append(client.EngineClient(settings)))
thread.start()
thread.join()
print(started[0].pid, started[0].facts["worker"], flush=True)
time.sleep(600)
"""
"""A runner whose engine was started by a thread that is over, as those of several engines are."""
WITHOUT_MODEL = """
import subprocess
from ablation.policy.vllm import engine_process
class Engine:
    def __init__(self, settings):
        workers = settings.tensor_parallel - 1
        self.worker = subprocess.Popen(["sleep", "600"]).pid if workers else 0
    def facts(self):
        return {"worker": self.worker}
engine_process.Engine = Engine
engine_process.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a stopped process stays until it is woken up")
@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_a_stopped_engine_and_its_workers_end_with_their_runner(tmp_path, tensor_parallel):
    (tmp_path / "program").write_text(WITHOUT_MODEL)
    runner = subprocess.Popen(
        [sys.executable, "-c", ENDING, str(tensor_parallel), str(tmp_path / "program")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    pids = []
    try:
        pids += [int(pid) for pid in runner.stdout.readline().split() if pid != "0"]
        assert len(pids) == tensor_parallel
        time.sleep(0.2)
        assert all(map(lives, pids)), "the thread that started it is over"
        for pid in pids:
            stop(pid)
        runner.kill()
        assert all(map(gone, pids))
    finally:
        runner.kill()
        runner.communicate()
        for pid in filter(lives, pids):
            os.kill(pid, signal.SIGKILL)
