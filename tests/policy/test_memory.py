"""The estimate's counts by hand, and the whole against what was measured (see README): no process of that size is made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ablation.plan.footprint import adapter_parameters, kv_bytes, shape_of, trainer_activations, trainer_parts
from ablation.plan.model import Plan
from ablation.policy.memory import estimate

ROOT = Path(__file__).parents[2]
TINY = ROOT / "ablation" / "assets" / "tiny-reasoner"
SETTINGS = {"eager": True, "sequences": 64, "batch_tokens": 2048}


def tiny_plan() -> Plan:
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    tree["policy"] = {"backend": "vllm", "vllm": SETTINGS | {"kv_cache_gb": 0.05}}
    return Plan.model_validate(tree)


def smollm2_plan(dtype="bfloat16", kv_cache_gb=0.5, **training) -> Plan:
    tree = yaml.safe_load((ROOT / "plans" / "smollm2.yaml").read_text())
    tree["policy"] = {"backend": "vllm", "vllm": SETTINGS | {"kv_cache_gb": kv_cache_gb, "context": 512}}
    tree["model"]["dtype"] = dtype
    tree["training"] |= training
    return Plan.model_validate(tree)


def smollm2_config() -> dict:
    return {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "head_dim": 64,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
    }


def test_the_shape_is_the_configs():
    plan = tiny_plan()
    shape = shape_of(json.loads((TINY / "base" / "config.json").read_text()), plan)
    assert (shape.layers, shape.hidden, shape.vocabulary) == (plan.model.layers, plan.model.hidden_size, plan.model.vocabulary)


def test_an_adapters_parameters_are_those_in_its_file():
    from safetensors import safe_open

    plan = tiny_plan()
    with safe_open(TINY / "start-adapter" / "adapter_model.safetensors", "np") as file:
        counted = sum(file.get_tensor(name).size for name in list(file.keys()))
    assert adapter_parameters(plan, shape_of(json.loads((TINY / "base" / "config.json").read_text()), plan)) == counted


def test_keys_and_values_by_hand():
    """SmolLM2-135M: 30 layers of 3 key heads of 64, keys and values, 2 bytes each: 23,040 bytes a token."""
    plan = smollm2_plan()
    shape = shape_of(smollm2_config(), plan)
    assert kv_bytes(shape, 2) == 2 * 30 * 3 * 64 * 2 == 23_040
    found = estimate(plan, smollm2_config(), 60, "cpu", 1)
    assert found.longest == 60 + 160
    assert found.kv_of_one == 256 * 23_040  # two blocks of 128 tokens
    assert found.at_once == 500_000_000 // (256 * 23_040)
    assert estimate(plan, smollm2_config(), 60, "cuda", 1).kv_of_one == 224 * 23_040  # blocks of 16


def test_what_takes_more_is_estimated_to_take_more():
    def of(**changes):
        return estimate(smollm2_plan(**changes), smollm2_config(), 60, "cpu", 1)

    plain = of()
    assert of(micro_batch_tokens=4096).trainer["activations"] > 3 * plain.trainer["activations"]
    assert of(gradient_checkpointing=True).trainer["activations"] < plain.trainer["activations"]
    assert of(kv_cache_gb=2.0).engine["kv cache"] == 4 * plain.engine["kv cache"]
    assert plain.together == sum(plain.trainer.values()) + sum(plain.engine.values())
    assert plain.in_turns < plain.together


@pytest.mark.parametrize(
    "changes, peak",
    [
        ({}, 1_677),
        ({"micro_batch_tokens": 4096}, 4_455),
        ({"dtype": "float32"}, 2_588),
    ],
)
def test_the_trainers_estimate_is_within_a_quarter_of_what_was_measured(changes, peak):
    """Peak resident MB of one process that took two updates of full micro-batches, on a CPU (README)."""
    found = sum(estimate(smollm2_plan(**changes), smollm2_config(), 60, "cpu", 1).trainer.values()) / 1e6
    assert 0.75 * peak <= found <= 1.34 * peak


def test_a_backward_pass_on_a_gpu_is_within_a_tenth_of_what_was_measured():
    """`runs/records/gpu-check`: 16 layers of 2048 in bfloat16, micro-batches of 16,384 tokens: 19.7 GB beyond the model."""
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    tree["model"] |= {"dtype": "bfloat16", "layers": 16, "hidden_size": 2048, "vocabulary": 151_936}
    tree["model"]["lora"]["targets"] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    tree["training"] |= {"micro_batch_tokens": 16_384, "autocast": "bfloat16"}
    tree["sampling"] |= {"max_tokens": 2048}
    plan = Plan.model_validate(tree)
    config = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "intermediate_size": 6144}
    shape = shape_of(config | {"num_key_value_heads": 8, "vocab_size": 151_936}, plan)
    assert trainer_activations(plan, shape, 2048, "cuda") / 1e9 == pytest.approx(19.7, rel=0.1)


def test_a_trainer_divided_over_processes_by_hand():
    plan = smollm2_plan()
    shape = shape_of(smollm2_config() | {"tie_word_embeddings": True}, plan)
    one, four, cpu = (trainer_parts(plan, shape, 200, *rest) for rest in (("cuda",), ("cuda", 4), ("cpu", 4)))
    table = 2 * 49_152 * 576  # bfloat16; held twice, as embedding and head are gathered at different times
    assert one["weights"] == 2 * 134_515_008 and "gathered" not in one
    assert four["weights"] == (2 * 134_515_008 + table) / 4
    assert four["gathered"] == table, "more than two layers of 7 MB"
    assert four["adapter"] == one["adapter"] / 4
    assert (four["activations"], four["process"]) == (one["activations"], one["process"])
    assert cpu["weights"] == 2 * 134_515_008 + table, "all four in one memory"
    assert (cpu["gathered"], cpu["process"]) == (4 * table, 4 * 600_000_000)
