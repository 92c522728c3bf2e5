import pytest

from ablation.errors import UsageError
from ablation.plan.lock import lock_plan
from ablation.study import workspace
from ablation.study.workspace import free_memory, gate

from .mini import ROOT, mini_tree, write_plan


def test_a_model_that_does_not_fit_is_refused_before_anything_starts(tmp_path, monkeypatch):
    plan = write_plan(tmp_path, mini_tree())
    lock_plan(plan)
    assert gate(plan).plan.name == "mini"
    monkeypatch.setattr(workspace, "free_memory", lambda: ("this machine", 1_000_000))
    with pytest.raises(UsageError, match=r"model.base: its weights need 0.0 GB of memory; this machine has 0.0 GB free"):
        gate(plan)


def test_moments_that_are_not_there_are_missed_before_the_first_arm_and_not_when_their_turn_comes(tmp_path):
    tree = mini_tree()
    tree["arms"]["XK"]["optimizer"] = {"state": "start"}
    plan = write_plan(tmp_path, tree)
    lock_plan(plan)
    with pytest.raises(UsageError, match=r"arms\.XK\.optimizer\.state: `start` needs the optimizer's state: ") as caught:
        gate(plan)
    assert caught.value.hint == "Nothing was started."


def test_free_memory_is_what_the_system_says():
    what, free = free_memory()
    assert what and free > 10**6


def test_the_27b_plan_says_everything_that_is_missing(tmp_path):
    plan = tmp_path / "plans" / "tessera.yaml"
    plan.parent.mkdir()
    plan.write_bytes((ROOT / "plans" / "tessera.yaml").read_bytes())
    lock_plan(plan)
    with pytest.raises(UsageError) as refused:
        gate(plan)
    for part in ("model.base", "model.start_adapter: owed", "problems.training: owed", "its weights need 55.6 GB of memory"):
        assert part in refused.value.message
    assert refused.value.exit_code == 2
