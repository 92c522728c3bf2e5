from __future__ import annotations

import json

from ablation.cli.doctor import report
from tests.study.mini import ablation, mini_tree, write_plan


def test_a_local_policy_passes_its_self_test_without_a_lock(tmp_path):
    path = write_plan(tmp_path, mini_tree())
    done = ablation(tmp_path, "doctor", "--plan", str(path), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["engine"]["name"] == "local"
    assert not path.with_suffix(".lock").exists()
    assert not (tmp_path / "runs").exists()


def test_a_model_that_is_not_there_is_named(tmp_path):
    tree = mini_tree()
    tree["model"]["base"] = {"at": "recipe:nobody/base"}
    done = ablation(tmp_path, "doctor", "--plan", str(write_plan(tmp_path, tree)))
    assert done.returncode == 2
    assert "model.base: `recipe:nobody/base` is not at" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_report_of_a_preflight_has_a_line_for_each_proof():
    proof = {
        "mismatch": 0.0019,
        "mismatch_largest": 0.062,
        "bound": 0.05,
        "mismatch_base": 0.0021,
        "zero_adapter_changes": 0.0,
        "targets": {"q_proj": {"changes": 0.5, "mismatch": 0.002}, "lm_head": {"changes": 0.4, "mismatch": 0.003}},
        "sampled_tokens": 384,
        "sampled_evidence": -2.34,
        "same_seed_identical": 0.96875,
        "longest_rollout": 214,
        "longest_at_once": 7,
    }
    assert report({"engine": {}, "preflight": proof}) == [
        "sampler against trainer   0.0019 nats in the mean, at most 0.062; bound 0.05",
        "base without adapter      0.0021 nats",
        "adapter of all zeros      changes 0 nats",
        "adapter on q_proj         changes 0.5 nats; 0.002 from the trainer",
        "adapter on lm_head        changes 0.4 nats; 0.003 from the trainer",
        "tokens sampled            384; at most 10^-2.3 times likelier with other sampling values than with the plan's; 10^9.8 would be refused",
        "same seeds again          97% of rollouts identical",
        "longest rollout           214 tokens; 7 fit at one time",
    ]
