import json
from pathlib import Path

import pytest

from ablation.plan.load import load_plan
from ablation.plan.model_files import model_problems

BASE = {
    "num_hidden_layers": 4,
    "hidden_size": 128,
    "vocab_size": 40,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
ADAPTER = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["lm_head", "q_proj"], "bias": "none"}


def problems(plan_path: Path, base=BASE, adapter=ADAPTER) -> list[str]:
    """Messages for the small plan (rank 8, 4 layers of 128, 40 tokens, cap 200) with these two folders."""
    folder = plan_path.parent
    plan_path.write_text(plan_path.read_text().replace("at: base.bin", "at: base").replace("at: adapter.bin", "at: adapter"))
    for name, file, content in (("base", "config.json", base), ("adapter", "adapter_config.json", adapter)):
        (folder / name).mkdir()
        (folder / name / file).write_text(content if isinstance(content, str) else json.dumps(content))
    loaded = load_plan(plan_path)
    return [f"{'.'.join(map(str, path))}: {text}" for path, text in model_problems(loaded.plan, loaded.path)]


def test_folders_that_fit_or_are_not_there(plan_path):
    loaded = load_plan(plan_path)
    assert model_problems(loaded.plan, loaded.path) == []
    assert problems(plan_path) == []


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (BASE | {"num_hidden_layers": 5}, "model.layers: found 4, but "),
        (BASE | {"hidden_size": 64}, "model.hidden_size: found 128, but "),
        (BASE | {"vocab_size": 41}, "model.vocabulary: found 40, but "),
        ({"text_config": BASE | {"vocab_size": 41}}, "model.vocabulary: found 40, but "),
        (BASE | {"max_position_embeddings": 200}, "sampling.max_tokens: found 200, but the model's context is 200 tokens"),
        (BASE | {"tie_word_embeddings": True}, "model.lora.targets: `lm_head` shares its matrix"),
        ("[]", "model.base: "),
        ("{", "model.base: "),
    ],
)
def test_a_base_that_does_not_fit(plan_path, base, expected):
    (found,) = problems(plan_path, base=base)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        (ADAPTER | {"r": 4}, "model.lora.rank: the plan says 8, the start adapter has 4"),
        (ADAPTER | {"lora_alpha": 16}, "model.lora.alpha: the plan says 8, the start adapter has 16"),
        (
            ADAPTER | {"target_modules": ["q_proj"]},
            "model.lora.targets: the plan says ['lm_head', 'q_proj'], the start adapter has",
        ),
        (ADAPTER | {"target_modules": "all-linear"}, "model.start_adapter: "),
        (ADAPTER | {"use_rslora": True}, "model.start_adapter: "),
        (ADAPTER | {"modules_to_save": ["embed_tokens"]}, "model.start_adapter: "),
        (ADAPTER | {"peft_type": "IA3"}, "model.start_adapter: "),
    ],
)
def test_an_adapter_that_does_not_fit(plan_path, adapter, expected):
    (found,) = problems(plan_path, adapter=adapter)
    assert found.startswith(expected)


def test_a_context_of_one_more_than_the_cap_is_enough_for_a_prompt(plan_path):
    assert problems(plan_path, base=BASE | {"max_position_embeddings": 201}) == []
