import json
import re
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


PAIR = {
    f"base.{name}.lora_{half}.weight": [8, 128][:: 1 if half == "A" else -1] for name in ("lm_head", "q_proj") for half in "AB"
}


def problems(plan_path: Path, base=BASE, adapter=ADAPTER, tensors=PAIR) -> list[str]:
    """Messages for the small plan (rank 8, 4 layers of 128, 40 tokens, cap 200) with these two folders."""
    folder = plan_path.parent
    plan_path.write_text(plan_path.read_text().replace("at: base.bin", "at: base").replace("at: adapter.bin", "at: adapter"))
    for name, file, content in (("base", "config.json", base), ("adapter", "adapter_config.json", adapter)):
        (folder / name).mkdir()
        (folder / name / file).write_text(content if isinstance(content, str) else json.dumps(content))
    if tensors is not None:
        (folder / "adapter" / "adapter_model.safetensors").write_bytes(safetensors(tensors))
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


NOT_PLAIN = [
    *(
        {"init_lora_weights": way}
        for way in ("pissa", "pissa_niter_4", "olora", "loftq", "eva", "corda", "lora_ga", "orthogonal")
    ),
    {"peft_type": "IA3"},
    {"peft_type": None},
    {"bias": "all"},
    {"use_rslora": True},
    {"use_dora": True},
    {"use_qalora": True},
    {"lora_bias": True},
    {"fan_in_fan_out": True},
    {"ensure_weight_tying": True},
    {"exclude_modules": ["k_proj"]},
    {"modules_to_save": ["embed_tokens"]},
    {"target_parameters": ["mlp.experts.gate_up_proj"]},
    {"trainable_token_indices": [1]},
    {"layers_to_transform": [0, 1]},
    {"layers_pattern": "layers"},
    {"layer_replication": [[0, 2]]},
    {"rank_pattern": {"q_proj": 4}},
    {"alpha_pattern": {"q_proj": 4}},
    {"loftq_config": {"loftq_bits": 4}},
    {"eva_config": {"rho": 2}},
    {"corda_config": {"x": 1}},
    {"alora_invocation_tokens": [1]},
    {"a_field_of_a_later_peft": True},
]


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
        *[
            (ADAPTER | odd, f"model.start_adapter: .*adapter_config.json has {name} .*; a plan describes plain LoRA")
            for odd in NOT_PLAIN
            for name in odd
        ],
    ],
)
def test_an_adapter_that_does_not_fit(plan_path, adapter, expected):
    (found,) = problems(plan_path, adapter=adapter)
    assert re.match(expected.replace("[", "\\["), found), found


def test_what_a_library_writes_into_the_config_of_plain_lora_is_taken(plan_path):
    """All fields as peft has them by default, and those that say where the adapter is from."""
    from peft import LoraConfig

    told = {"base_model_name_or_path": "/models/x", "revision": "main", "task_type": "CAUSAL_LM", "lora_dropout": 0.05}
    config = LoraConfig(r=8, lora_alpha=8, target_modules=["lm_head", "q_proj"], **told).to_dict()
    config |= {"target_modules": ["lm_head", "q_proj"], "inference_mode": True, "auto_mapping": {"base_model_class": "X"}}
    assert problems(plan_path, adapter=config) == []


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (None, "is not a safetensors file: .*No such file"),
        (PAIR | {"base.q_proj.lora_magnitude_vector": [128]}, "`base.q_proj.lora_magnitude_vector` is no weight of plain LoRA$"),
        (PAIR | {"base.q_proj.lora_B.bias": [128]}, "`base.q_proj.lora_B.bias` is no weight of plain LoRA$"),
        (PAIR | {"base.embed_tokens.weight": [40, 128]}, "`base.embed_tokens.weight` is no weight of plain LoRA$"),
        (
            PAIR | {"base.q_proj.lora_A.weight": [4, 128]},
            r"`base.q_proj.lora_A.weight` has the shape \[4, 128\]; the plan's rank is 8$",
        ),
        ({name: PAIR[name] for name in list(PAIR)[1:]}, "`base.lm_head` has no lora_A$"),
        ({name: PAIR[name] for name in list(PAIR)[2:]}, "holds nothing for the target `lm_head`$"),
        (
            PAIR | {name.replace("q_", "v_"): shape for name, shape in PAIR.items()},
            "`base.v_proj` is none of the plan's targets$",
        ),
    ],
)
def test_an_adapters_file_is_looked_at_before_the_lock(plan_path, tensors, expected):
    (found,) = problems(plan_path, tensors=tensors)
    assert re.search(rf"^model.start_adapter: .*adapter_model.safetensors: {expected}", found), found


def test_a_context_of_one_more_than_the_cap_is_enough_for_a_prompt(plan_path):
    assert problems(plan_path, base=BASE | {"max_position_embeddings": 201}) == []


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
            "`step/base.lm_head.lora_A.default.weight` is missing",
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
