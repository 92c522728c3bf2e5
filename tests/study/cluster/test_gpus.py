"""A worker that was given a GPU ends with its unit; an arm that is trained by a command of its own is no unit."""

import sys

import pytest

from ablation.errors import UsageError
from ablation.plan.lock import lock_plan, verify_lock
from ablation.study.cluster.study import open_cluster_study

from ..mini import write_plan
from .conftest import STORE, Silent, small_tree, worker_of

pytestmark = pytest.mark.slow


def test_a_worker_with_a_gpu_does_one_unit_and_an_external_arm_is_refused(cluster, tmp_path):
    """The node only says that it has one, as this is about processes."""
    tree = small_tree()
    tree["arms"] = {"C": tree["arms"]["C"], "E": {"external": {"command": [sys.executable, "-c", "pass"], "each": "arm"}}}
    tree["training"] |= {"updates": 1}
    plan = write_plan(tmp_path, tree)
    lock_plan(plan)
    node = cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=STORE)
    try:
        with open_cluster_study(verify_lock(plan), tmp_path / "run", Silent(), address=cluster.address) as study:
            assert (study.dispatch.cluster.needs.gpus, study.dispatch.cluster.places) == (1, 1)
            with pytest.raises(UsageError, match="--on: arm E is trained by a command of its own") as refused:
                study.run_all()
            assert "ablation run --arm E" in refused.value.hint
            assert not list((tmp_path / "run").rglob("part-*"))
            study.run_arm("main", "C")
            loaded = [worker_of(event) for event in study.journal.events if event["event"] == "model_loaded"]
        assert len({pid for pid, _ in loaded}) == len(loaded) == 3  # sweep, update, readout
        assert {name for _, name in loaded} == {node.node_id[:8]}
    finally:
        cluster.remove_node(node)
