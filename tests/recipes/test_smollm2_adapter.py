"""The start adapter's training: what is learned, on which questions, and the folder that comes out."""

import json
from itertools import islice
from pathlib import Path

import pytest

from ablation.files import sha256_path
from ablation.plan.load import load_plan
from ablation.recipes import smollm2_adapter as recipe
from ablation.recipes.smollm2_problems import study_problems
from ablation.recipes.smollm2_traces import Trace
from tests.recipes.smollm2_small import write_model

torch = pytest.importorskip("torch")
pytest.importorskip("reasoning_gym")

PLAN = Path(__file__).parents[2] / "plans" / "smollm2.yaml"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(base):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base)


def test_the_adapter_has_the_shape_that_the_plan_says():
    model = load_plan(PLAN).plan.model
    assert (model.lora.rank, model.lora.alpha, tuple(model.lora.targets)) == (recipe.RANK, recipe.ALPHA, recipe.TARGETS)
    assert "lm_head" not in recipe.TARGETS


def test_an_example_is_prompt_thinking_close_answer_end(tokenizer):
    example = recipe.encode(tokenizer, "1+1 =", "low", Trace("1+1=2\n", "2"))
    assert tokenizer.decode(example.prompt).endswith("1+1 =\neffort: low<|im_end|>\n<|im_start|>assistant\n<think>\n")
    assert tokenizer.decode(example.completion) == "1+1=2\n</think>\n2<|im_end|>"


def test_a_stuck_solution_is_cut_and_never_ends(tokenizer):
    example = recipe.encode(tokenizer, "1+1 =", "low", Trace("1+1=2\n" * 200, None))
    assert len(example.completion) == recipe.MAX_COMPLETION > load_plan(PLAN).plan.sampling.max_tokens
    assert not {8, 10, tokenizer.eos_token_id} & set(example.completion)


def test_no_example_is_a_question_of_the_study_and_none_comes_twice(tokenizer):
    prompts = [tokenizer.decode(example.prompt) for example in islice(recipe.corpus(tokenizer), recipe.STEPS * recipe.BATCH)]
    assert len(set(prompts)) == len(prompts)
    efforts = [prompt.split("effort: ")[1].split("<")[0] for prompt in prompts[:9]]
    assert efforts == ["low", "medium", "xhigh"] * 3
    for problem in study_problems():
        assert not any(f"\n{problem.prompt}\n" in prompt for prompt in prompts)


def test_the_loss_is_the_models_own_over_the_completion(base, tokenizer):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    batch = list(islice(recipe.corpus(tokenizer), 3))
    expected = 0.0
    for example in batch:  # one row at a time, so without padding
        ids = torch.tensor([example.prompt + example.completion])
        labels = ids.clone()
        labels[0, : len(example.prompt)] = -100
        expected += float(model(input_ids=ids, labels=labels).loss.detach()) * len(example.completion)
    found = float(recipe.completion_loss(model, batch, tokenizer.pad_token_id).detach())
    assert found == pytest.approx(expected, rel=5e-3)  # bfloat16 products


def test_the_rate_warms_up_and_comes_down():
    rates = [recipe.learning_rate(step) for step in range(recipe.STEPS)]
    assert rates[0] == pytest.approx(recipe.LEARNING_RATE / recipe.WARMUP)
    assert max(rates) == rates[recipe.WARMUP] == recipe.LEARNING_RATE
    assert rates[recipe.WARMUP :] == sorted(rates[recipe.WARMUP :], reverse=True)
    assert recipe.LEARNING_RATE * recipe.FINAL_SHARE < rates[-1] < recipe.LEARNING_RATE * recipe.FINAL_SHARE * 1.05


def test_training_learns_and_leaves_a_plain_peft_folder(base, tmp_path, monkeypatch):
    from safetensors.torch import load_file

    monkeypatch.setattr(recipe, "STEPS", 12)
    monkeypatch.setattr(recipe, "SAY_EVERY", 1)
    threads, said = torch.get_num_threads(), {}
    torch.set_num_threads(1)
    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            said[name] = []
            recipe.make_adapter(tmp_path / name, base, said[name].append)
    finally:
        torch.set_num_threads(threads)
    losses = [float(line.split("loss ")[1].split()[0]) for line in said["one"]]
    assert sum(losses[-3:]) < sum(losses[:3])
    assert sha256_path(tmp_path / "one") == sha256_path(tmp_path / "two")  # on one machine, with one thread
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    config = json.loads((tmp_path / "one" / "adapter_config.json").read_bytes())
    assert config["target_modules"] == sorted(recipe.TARGETS)
    assert config["base_model_name_or_path"] == "recipe:smollm2/base"
    weights = load_file(tmp_path / "one" / "adapter_model.safetensors")
    assert len(weights) == 2 * 2 * len(recipe.TARGETS)  # A and B of each target in each of two layers
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert all(bool(weight.any()) for weight in weights.values())


@pytest.mark.slow
def test_the_adapter_in_the_cache_fits_the_plan():
    from ablation.files import folder_is_complete
    from ablation.plan.locate import locate

    plan = load_plan(PLAN).plan
    adapter = locate(plan.model.start_adapter, PLAN)
    if not folder_is_complete(adapter):
        pytest.skip("not made yet: ablation prepare plans/smollm2.yaml")
    from safetensors import safe_open

    with safe_open(adapter / "adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
    assert len(names) == 2 * plan.model.layers * len(plan.model.lora.targets)
    assert not any("lm_head" in name or "embed" in name for name in names)
