"""The SmolLM2 study under another sampler is the same study."""

from __future__ import annotations

from pathlib import Path

from ablation.plan.load import load_plan

PLANS = Path(__file__).parents[2] / "plans"


def test_the_two_plans_differ_in_name_and_policy_alone():
    local, vllm = (load_plan(PLANS / f"{name}.yaml").plan.model_dump(mode="json") for name in ("smollm2", "smollm2-vllm"))
    assert {field for field in local if local[field] != vllm[field]} == {"name", "policy"}
    assert local["policy"]["backend"] == "local"
    assert vllm["policy"]["backend"] == "vllm"
    assert local["policy"]["threads"] == vllm["policy"]["threads"] == 1
    assert vllm["policy"]["vllm"]["sequences"] == vllm["sampling"]["batch_rollouts"]
