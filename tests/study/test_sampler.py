"""Prompts of the real tokenizer against the model's context."""

import pytest

from ablation.errors import UsageError
from ablation.plan.locate import locate
from ablation.plan.model import Plan
from ablation.policy.loading import load_tokenizer
from ablation.problems.problem import load_problems
from ablation.study.sampler import Prompts
from ablation.study.schedule import plan_cells

from .mini import ROOT, mini_tree


def test_prompt_and_cap_must_fit_into_the_context():
    plan = Plan.model_validate(mini_tree())
    here = ROOT / "plans" / "mini.yaml"
    prompts = Prompts(plan, load_problems(locate(plan.problems.training, here)), load_tokenizer(locate(plan.model.base, here)))
    longest = max(len(prompts[cell].ids) for cell in plan_cells(plan))
    prompts.check_context(longest + 96, 96)
    prompts.check_context(None, 96)
    with pytest.raises(UsageError, match=rf"96 tokens after the prompt of \S+ \({longest} tokens\) do not fit into the model's"):
        prompts.check_context(longest + 95, 96)
    with pytest.raises(
        UsageError, match=rf"policy\.vllm\.context: {longest + 95} tokens do not hold the prompt of \S+"
    ) as raised:
        prompts.check_context(longest + 95, 96, "policy.vllm.context")
    assert f"at least {longest + 96} there" in raised.value.hint
