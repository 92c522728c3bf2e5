"""One small run with a base of its own, made once; and a bfloat16 study whose starting adapter rounding swallows, or not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ablation.files import sha256_path
from tests.study.mini import ROOT, ablation, mini_tree, write_plan

TINY = ROOT / "ablation" / "assets" / "tiny-reasoner"


def resource(folder: Path, name: str) -> dict[str, str]:
    return {"at": f"../{name}", "sha256": sha256_path(folder / name)}


def locked_study(folder: Path, tree: dict) -> Path:
    """The plan's path, after locking it. `folder` has `base` and `start-adapter`."""
    tree["model"]["base"], tree["model"]["start_adapter"] = (resource(folder, one) for one in ("base", "start-adapter"))
    plan = write_plan(folder, tree)
    done = ablation(folder, "plan", "lock", str(plan))
    assert done.returncode == 0, done.stderr
    return plan


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A folder with plans/mini.yaml and runs/mini: the control C trained for two updates, and read out."""
    folder = tmp_path_factory.mktemp("mini")
    shutil.copytree(TINY / "base", folder / "base")
    (folder / "base" / "generation_config.json").write_text(json.dumps({"top_k": 1, "repetition_penalty": 1.1}))
    shutil.copytree(TINY / "start-adapter", folder / "start-adapter")
    plan = locked_study(folder, mini_tree())
    done = ablation(folder, "run", "--arm", "C", "--plan", str(plan))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def study(finished, tmp_path) -> Path:
    """A copy of `finished` that a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "study"))


def bfloat16_study(folder: Path, sigma: float) -> Path:
    """The shipped model in bfloat16, with a starting adapter whose halves are normal with `sigma`; its locked plan's path."""
    shutil.copytree(TINY / "base", folder / "base")
    weights = load_file(folder / "base" / "model.safetensors")
    save_file({name: one.bfloat16() for name, one in weights.items()}, folder / "base" / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "base" / "config.json").read_text())
    (folder / "base" / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    shutil.copytree(TINY / "start-adapter", folder / "start-adapter")
    halves = load_file(folder / "start-adapter" / "adapter_model.safetensors")
    torch.manual_seed(0)
    made = {name: torch.randn(one.shape) * sigma for name, one in halves.items()}
    save_file(made, folder / "start-adapter" / "adapter_model.safetensors", {"format": "pt"})
    tree = mini_tree()
    tree["model"]["dtype"] = "bfloat16"
    return locked_study(folder, tree)
