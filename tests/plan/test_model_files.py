import json
import struct
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


PAIR = {"base.q_proj.lora_A.weight": [8, 128], "base.q_proj.lora_B.weight": [128, 8]}
MOMENTS = {
    f"{field}/{name.replace('.weight', '.default.weight')}": [] if field == "step" else shape
    for field in ("step", "exp_avg", "exp_avg_sq")
    for name, shape in PAIR.items()
}


def safetensors(shapes: dict[str, list[int]]) -> bytes:
    """A file with these tensors, all zeros (the layout of the safetensors format: length, header, data)."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes.items():
        count = 4
        for size in shape:
            count *= size
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + count]}
        data += bytes(count)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def with_moments(plan_path: Path, content: bytes | None, where: str) -> list[str]:
    text = plan_path.read_text()
    if where == "training":
        text = text.replace("learning_rate: 2e-5", "learning_rate: 2e-5\n  optimizer: {state: start}")
    else:
        text = text.replace("weighting: rollout}", "weighting: rollout, optimizer: {state: start}}")
    assert "state: start" in text
    plan_path.write_text(text)
    folder = plan_path.parent / "adapter"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(safetensors(PAIR))
    if content is not None:
        (folder / "optimizer.safetensors").write_bytes(content)
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    plan_path.write_text(plan_path.read_text().replace("at: adapter.bin", "at: adapter"))
    loaded = load_plan(plan_path)
    return [f"{'.'.join(map(str, path))}: {text}" for path, text in model_problems(loaded.plan, loaded.path)]


@pytest.mark.parametrize(("where", "field"), [("training", "training.optimizer.state"), ("arm", "arms.N.optimizer.state")])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (safetensors(MOMENTS), None),
        (None, "there is no such file"),
        (b"", "is not a safetensors file"),
        (safetensors(MOMENTS)[:40], "is not a safetensors file"),
        (struct.pack("<Q", 2**60) + b"{}", "is not a safetensors file"),
        (struct.pack("<Q", 100_008) + b"[" * 100_008, "is not a safetensors file"),
        (safetensors({"empty": [1]}), "holds no moments: no step was taken before it was stored"),
        (
            safetensors({name: shape for name, shape in MOMENTS.items() if name[:5] != "step/"}),
            "`step/base.q_proj.lora_A.default.weight` is missing",
        ),
        (safetensors(MOMENTS | {"exp_avg/other": [2]}), "`exp_avg/other` is of no weight of the start adapter"),
        (
            safetensors(MOMENTS | {"exp_avg/base.q_proj.lora_B.default.weight": [8, 128]}),
            "`exp_avg/base.q_proj.lora_B.default.weight` has the shape [8, 128], the weight [128, 8]",
        ),
    ],
)
def test_moments_that_an_arm_starts_with_are_looked_for_before_anything_runs(plan_path, where, field, content, expected):
    found = with_moments(plan_path, content, where)
    if expected is None:
        assert found == []
        return
    [one] = found
    assert one.startswith(
        f"{field}: `start` needs the optimizer's state: {plan_path.parent / 'adapter' / 'optimizer.safetensors'}"
    )
    assert expected in one
