"""Stop rules, an extension and engines on a cluster: what a serial run does, with the same bytes."""

from pathlib import Path

import pytest

from ablation.errors import IntegrityError, StopRuleFired
from ablation.plan.deviations import record_deviation
from ablation.plan.lock import LockedPlan, lock_plan, verify_lock
from ablation.study.cluster.study import open_cluster_study
from ablation.study.runner import open_study

from ..mini import ROOT, contents, write_plan
from .conftest import STORE, Silent, small_tree

pytestmark = pytest.mark.slow


def locked_plan(folder: Path, tree: dict) -> LockedPlan:
    plan = write_plan(folder, tree)
    lock_plan(plan)
    return verify_lock(plan)


def both(locked: LockedPlan, folder: Path, cluster, do) -> list[dict[str, bytes]]:
    """The contents of two runs in which `do` was done with the study: without a cluster, and on one."""
    with open_study(locked, folder / "serial", Silent()) as study:
        do(study)
    with open_cluster_study(locked, folder / "cluster", Silent(), address=cluster.address) as study:
        do(study)
    return [contents(folder / name) for name in ("serial", "cluster")]


def test_an_arm_is_extended(cluster, tmp_path):
    tree = small_tree() | {"extension": {"arms": ["XK"], "updates": 2, "checks": [2]}}
    tree["training"] |= {"updates": 1}
    locked = locked_plan(tmp_path, tree)
    record_deviation(locked, reason="Extended without a verdict.", seen="nothing", opens=["extension"])

    def extended(study) -> None:
        study.run_arm("main", "XK")
        study.extend_arm("main", "XK", 2)

    serial, found = both(locked, tmp_path, cluster, extended)
    assert "main/XK/check-2/check.json" in serial and "main/XK/update-2/checkpoint/optimizer.safetensors" in serial
    assert found == serial


def test_a_stop_rule_ends_an_arm(cluster, tmp_path):
    tree = small_tree()
    tree["stop_rules"] = [{"name": "any_unfinished", "measure": "truncated_or_looping_share", "op": ">", "limit": 0.0}]
    tree["sampling"] |= {"max_tokens": 6}

    def stopped(study) -> None:
        for _ in range(2):  # still, and nothing is trained again
            with pytest.raises(StopRuleFired, match="main/C: stop rule `any_unfinished` ended the run after update 1"):
                study.run_arm("main", "C")

    serial, found = both(locked_plan(tmp_path, tree), tmp_path, cluster, stopped)
    assert "main/C/stopped.json" in serial and not any(name.startswith("main/C/update-2") for name in serial)
    assert found == serial


def test_two_kinds_of_machines_never_sample_one_stage(cluster, tmp_path):
    """On one of the two nodes that are large enough, torch computes without the processor's wide instructions."""
    tree = small_tree()
    tree["policy"] = {"threads": 2}
    own = {"PYTHONPATH": str(ROOT)}
    nodes = [
        cluster.add_node(num_cpus=2, object_store_memory=STORE, env_vars=more)
        for more in (own, own | {"ATEN_CPU_CAPABILITY": "default"})
    ]
    try:
        with (
            pytest.raises(IntegrityError, match="main/start/sweep: .* samples with another engine than .*cpu_capability"),
            open_cluster_study(locked_plan(tmp_path, tree), tmp_path / "run", Silent(), address=cluster.address) as study,
        ):
            study.run_arm("main", "C")
        assert not (tmp_path / "run/main/start/sweep/stage.json").exists()
    finally:
        for node in nodes:
            cluster.remove_node(node)
