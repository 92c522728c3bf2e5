"""An engine's process that does not come to vLLM: where nothing of it is installed, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablation.errors import EngineFailed
from ablation.policy.vllm import client as module
from ablation.policy.vllm.client import EngineClient
from ablation.policy.vllm.messages import EngineSettings

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
