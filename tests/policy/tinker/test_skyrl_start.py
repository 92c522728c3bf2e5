from __future__ import annotations

import sys

import pytest

from ablation.recipes import skyrl_start
from tests.study.mini import ROOT


def test_a_server_that_is_not_there_is_waited_for_and_then_one_error(monkeypatch, capsys):
    monkeypatch.setattr(skyrl_start, "PATIENCE", 1.0)
    monkeypatch.setenv("TINKER_API_KEY", "tml-none")
    monkeypatch.setenv("ABLATION_TINKER_SERVER", "http://127.0.0.1:9")
    monkeypatch.setattr(sys, "argv", ["skyrl_start", str(ROOT / "plans/everywhere.yaml"), "--checkpoints", "nowhere"])
    with pytest.raises(SystemExit) as ended:
        skyrl_start.main()
    assert "waiting for its first answer: no answer from http://127.0.0.1:9" in str(ended.value.code)
    assert "trying again" in capsys.readouterr().err
