"""An arm and its extension, killed 20 times inside sampling, backward and save, end with the bytes of a run that was left alone."""

import random
import shutil

import pytest

from ablation.plan.deviations import record_deviation
from ablation.plan.lock import lock_plan, verify_lock
from ablation.rollouts.journal_chain import check_journal

from .kill import finish, killed_often
from .mini import contents, mini_tree, write_plan

pytestmark = pytest.mark.slow

KEPT = ("adapter_model.safetensors", "optimizer.safetensors", "audit.json", "measures.json", "check.json", "stage.json")


def tiny_tree() -> dict:
    """A third of the small study, so that twenty starts and the work between them take about a minute."""
    tree = mini_tree()
    tree["problems"]["cells"] = {effort: ids[:2] for effort, ids in tree["problems"]["cells"].items()}
    tree["sampling"] |= {"max_tokens": 64, "batch_rollouts": 5}
    tree["training"] |= {"rollouts_per_cell": 2}
    return tree | {"extension": {"arms": ["XK"], "updates": 3, "checks": [3]}}


def test_killed_twenty_times_it_ends_with_the_same_bytes(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    plan = write_plan(whole, tiny_tree())
    lock_plan(plan)
    record_deviation(verify_lock(plan), reason="Extended without a verdict.", seen="nothing", opens=["extension"])
    shutil.copytree(whole, killed)
    finish(whole)
    kills = killed_often(killed, random.Random(4))
    assert sum(kills.values()) == 20
    assert kills["save"] == 3 and kills["backward"] >= 2 and kills["sampling"] >= 1, kills

    expected, found = (contents(folder / "runs" / "mini") for folder in (whole, killed))
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    for name in KEPT:  # nothing that matters was left out of the comparison
        assert any(path.endswith(f"update-3/checkpoint/{name}") or path.endswith(f"/{name}") for path in expected), name
    digest = verify_lock(killed / "plans" / "mini.yaml").digest
    state = check_journal(killed / "runs" / "mini", digest)  # wherever a kill fell, no stage is without its event
    assert state.notes == () and sum(event["event"] == "runner_started" for event in state.events) > 20
