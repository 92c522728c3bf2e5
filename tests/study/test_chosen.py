from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.plan.lock import lock_plan, verify_lock
from ablation.rollouts.folder import inflight_file
from ablation.rollouts.inflight import append_rollouts
from ablation.rollouts.store import part_info
from ablation.study.chosen import choose_backend, chosen_run

from .mini import ROOT, ablation, mini_tree, write_plan


def locked_plan(folder: Path, policy: dict):
    plan = write_plan(folder, mini_tree() | {"policy": policy})
    lock_plan(plan)
    return verify_lock(plan)


def with_sweep(locked, root: Path, backend: str) -> Path:
    """A run folder whose first sweep says that `backend` sampled it."""
    record = ROOT / "runs" / "records" / {"local": "smollm2", "vllm": "smollm2-vllm"}[backend]
    shutil.copytree(record / "main" / "start" / "sweep", root / locked.plan.main_family / "start" / "sweep")
    return root


def test_an_option_goes_before_the_environment_and_both_before_the_plans_own(tmp_path, monkeypatch):
    monkeypatch.delenv("ABLATION_POLICY", raising=False)
    locked = locked_plan(tmp_path, {"backend": "local", "also": ["vllm"]})
    assert choose_backend(["local", "vllm"], locked.path, None, {}) is None
    assert choose_backend(["local", "vllm"], locked.path, None, {"ABLATION_POLICY": "vllm"}) == "vllm"
    assert choose_backend(["local", "vllm"], locked.path, "local", {"ABLATION_POLICY": "vllm"}) == "local"
    with pytest.raises(UsageError, match="ABLATION_POLICY: found `vlm`; the plan .* may be run with local or vllm"):
        choose_backend(["local", "vllm"], locked.path, None, {"ABLATION_POLICY": "vlm"})


def test_what_a_run_is_made_with_changes_nothing_of_what_is_locked(tmp_path, monkeypatch):
    monkeypatch.delenv("ABLATION_POLICY", raising=False)
    locked = locked_plan(tmp_path, {"backend": "local", "also": ["vllm"]})
    own, own_root, unnamed = chosen_run(locked, None, None)
    other, other_root, named = chosen_run(locked, "vllm", None)
    assert (unnamed, named) == (None, "vllm")
    assert (own.plan.policy.backend, own.plan.policy.vllm, own_root.name) == ("local", None, "mini")
    assert (other.plan.policy.backend, other_root) == ("vllm", own_root.with_name("mini-vllm"))
    assert other.plan.policy.vllm is not None
    assert (own.digest, own.data) == (other.digest, other.data) == (locked.digest, locked.data)


@pytest.mark.parametrize("began", ["local", "vllm"])
def test_a_run_folder_keeps_the_backend_that_sampled_its_first_sweep(tmp_path, monkeypatch, began):
    monkeypatch.delenv("ABLATION_POLICY", raising=False)
    locked = locked_plan(tmp_path, {"backend": "local", "also": ["vllm"]})
    root = with_sweep(locked, tmp_path / "elsewhere", began)
    assert chosen_run(locked, None, root)[0].plan.policy.backend == began
    other = {"local": "vllm", "vllm": "local"}[began]
    with pytest.raises(UsageError, match=f"its rollouts were sampled with `{began}`, and a run does not mix backends") as refused:
        chosen_run(locked, other, root)
    assert f"{root}-{other}" in refused.value.hint


@pytest.mark.parametrize("left", ["parts", "log", "replication"])
def test_a_sweep_that_a_kill_cut_short_keeps_its_backend(tmp_path, monkeypatch, left):
    """Otherwise the plan's own would be loaded, and refused by the first rollout that is there."""
    monkeypatch.delenv("ABLATION_POLICY", raising=False)
    locked = locked_plan(tmp_path, {"backend": "local", "also": ["vllm"]})
    root = with_sweep(locked, tmp_path / "elsewhere", "vllm")
    sweep = root / locked.plan.main_family / "start" / "sweep"
    if left == "replication":  # an arm of another family was run first
        sweep.parent.parent.rename(root / next(name for name in locked.plan.families if name != locked.plan.main_family))
    else:
        of = part_info(sweep / "part-000.parquet")
        for path in sweep.iterdir():
            if left == "log" or path.name != "part-000.parquet":
                path.unlink()
        if left == "log":
            append_rollouts(inflight_file(sweep, 0), of, [])
    assert chosen_run(locked, None, root)[0].plan.policy.backend == "vllm"
    with pytest.raises(UsageError, match="its rollouts were sampled with `vllm`"):
        chosen_run(locked, "local", root)


def test_a_backend_that_the_plan_does_not_name_is_refused_in_one_line(tmp_path):
    locked_plan(tmp_path, {"backend": "local"})
    for command in (["run", "--all"], ["doctor"], ["evaluate", "held-out", "--subject", "C@2"]):
        done = ablation(tmp_path, *command, "--policy", "vllm")
        assert done.returncode == 2, done.stderr
        assert "--policy: found `vllm`; the plan plans/mini.yaml may be run with local" in " ".join(done.stderr.split())
