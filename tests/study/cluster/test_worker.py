"""What a worker needs before it can work."""

import shutil
from pathlib import Path

import pytest

from ablation.errors import IntegrityError, UsageError
from ablation.files import sha256_path
from ablation.plan.lock import lock_plan, verify_lock
from ablation.study.cluster.versions import differing
from ablation.study.cluster.worker import need_model

from ..mini import ROOT, write_plan
from .conftest import small_tree

MODEL = ROOT / "ablation" / "assets" / "tiny-reasoner"


@pytest.fixture
def driver(tmp_path) -> Path:
    """A plan with its model at a path of the driver's."""
    tree = small_tree()
    for field, name in (("base", "base"), ("start_adapter", "adapter")):
        source = MODEL / tree["model"][field]["at"].rpartition("/")[2]
        shutil.copytree(source, tmp_path / "driver" / "models" / name)
        tree["model"][field] = {"at": f"../models/{name}", "sha256": sha256_path(source)}
    plan = write_plan(tmp_path / "driver", tree)
    lock_plan(plan)
    return plan


def worker_plan(driver: Path, folder: Path):
    """The same locked plan in a worker's folder."""
    shutil.copytree(driver.parent, folder / "plans")
    return verify_lock(folder / "plans" / driver.name)


def places(folder: Path) -> dict[str, str]:
    return {"model.base": str(folder / "models/base"), "model.start_adapter": str(folder / "models/adapter")}


def test_a_model_at_the_drivers_path(driver, tmp_path):
    locked = worker_plan(driver, tmp_path / "worker")
    need_model(locked, places(driver.parent.parent))
    assert (tmp_path / "worker/models/base").resolve() == tmp_path / "driver/models/base"
    assert sha256_path(tmp_path / "worker/models/adapter") == locked.plan.model.start_adapter.sha256


def test_a_model_in_the_workers_own_folder(driver, tmp_path, monkeypatch):
    shutil.move(tmp_path / "driver/models", tmp_path / "elsewhere")
    monkeypatch.setenv("ABLATION_MODELS", f"{tmp_path / 'nothing'}:{tmp_path / 'elsewhere'}")
    need_model(worker_plan(driver, tmp_path / "worker"), places(tmp_path / "driver"))
    assert (tmp_path / "worker/models/base").resolve() == tmp_path / "elsewhere/base"


def test_a_model_that_is_nowhere(driver, tmp_path, monkeypatch):
    shutil.rmtree(tmp_path / "driver/models")
    monkeypatch.setenv("ABLATION_MODELS", str(tmp_path / "nothing"))
    with pytest.raises(
        UsageError, match=r"model.base: `\.\./models/base` is not there: .*driver/models/base nor .*nothing/base"
    ) as refused:
        need_model(worker_plan(driver, tmp_path / "worker"), places(tmp_path / "driver"))
    assert "ABLATION_MODELS" in refused.value.hint


def test_a_model_that_is_another_one(driver, tmp_path):
    locked = worker_plan(driver, tmp_path / "worker")
    with (tmp_path / "driver/models/adapter/adapter_config.json").open("a") as file:
        file.write(" ")
    with pytest.raises(IntegrityError, match="model.start_adapter: .* has the digest .* the plan was locked with"):
        need_model(locked, places(tmp_path / "driver"))


def test_versions_that_differ():
    own = {"python": "3.11.7", "torch": "2.13.0", "vllm": None, "numpy": "2.4.6"}
    assert differing(own, dict(own)) == []
    assert differing(own, own | {"torch": "2.12.0", "vllm": "0.32.0"}) == ["torch 2.12.0, here 2.13.0", "vllm 0.32.0, here none"]
    assert differing(own, {name: own[name] for name in ("python", "torch", "vllm")}) == ["numpy none, here 2.4.6"]
