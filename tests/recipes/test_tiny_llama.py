"""The Llama that ships beside the tiny reasoner: what its plan names is there, and what it answers is not all wrong."""

from pathlib import Path

import pytest

from ablation.files import sha256_path
from ablation.plan.load import load_plan
from ablation.plan.locate import locate
from ablation.plan.model_files import model_problems
from ablation.policy.base import SampleRequest
from ablation.problems.grade import grade
from ablation.problems.problem import load_problems
from ablation.problems.render import token_ids
from ablation.recipes import tiny_llama

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "plans" / "everywhere.yaml"
ASSETS = ROOT / "ablation" / "assets"


@pytest.fixture(scope="module")
def plan():
    return load_plan(PLAN).plan


def test_the_plan_names_the_files_and_every_backend(plan):
    for resource in (plan.model.base, plan.model.start_adapter, plan.problems.training):
        assert sha256_path(locate(resource, PLAN)) == resource.sha256
    assert model_problems(plan, PLAN) == []
    assert plan.policy.backends == ["local", "vllm", "tinker"]
    assert (plan.model.lora.rank, plan.model.lora.alpha) == (tiny_llama.RANK, tiny_llama.ALPHA)
    assert plan.model.lora.targets == tiny_llama.TARGETS


def test_the_tokenizer_is_the_tiny_reasoners():
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (ASSETS / "tiny-llama" / "base" / name).read_bytes() == (ASSETS / "tiny-reasoner" / "base" / name).read_bytes()


def test_the_recipe_makes_a_model_of_this_shape(plan):
    model = tiny_llama.make_model()
    assert sum(weight.numel() for weight in model.parameters()) == plan.model.parameters
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (3, 96, 26)
    assert config.head_dim == 32  # the smallest that vLLM's CPU build takes


def test_some_of_its_answers_are_right_and_some_are_not(plan):
    from ablation.policy.loading import load_tokenizer
    from ablation.policy.local import LocalPolicy
    from ablation.study.sampler import Prompts

    base = locate(plan.model.base, PLAN)
    tokenizer = load_tokenizer(base)
    ids = token_ids(tokenizer, plan.model.tokens)
    problems = load_problems(locate(plan.problems.training, PLAN))
    prompts = Prompts(plan, problems, tokenizer)
    policy = LocalPolicy(plan, base, locate(plan.model.start_adapter, PLAN), ids.end, 0)
    requests = [(cell, SampleRequest(tuple(prompts[cell].ids), seed)) for cell in prompts.cells for seed in range(8)]
    right = 0
    for (cell, _), one in zip(requests, policy.sample([request for _, request in requests]), strict=True):
        answer = tokenizer.decode(one.token_ids.tolist()).partition("</think>")[2].removesuffix("<|end|>")
        right += grade(problems[cell.problem], answer).status == "correct"
    assert 0.2 * len(requests) < right < 0.8 * len(requests)
