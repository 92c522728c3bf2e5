"""Names of hardware, what is assumed of it, and the sizes of the study's model by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.plan.footprint import Shape, adapter_parameters, kv_bytes, rank_times, shape_of, state_bytes, wrong_in_config
from ablation.plan.hardware import Assumed, catalog, hardware
from ablation.plan.load import load_plan

PLANS = Path(__file__).parents[2] / "plans"
TESSERA = load_plan(PLANS / "tessera.yaml").plan
CONFIG = json.loads((PLANS / "tessera.config.json").read_text())


@pytest.mark.parametrize(
    ("name", "device", "count"),
    [
        ("h200x8", "NVIDIA H200", 8),
        ("H100X8", "NVIDIA H100", 8),
        ("a10", "NVIDIA A10", 1),
        ("a10x1", "NVIDIA A10", 1),
        ("mi300x", "AMD Instinct MI300X", 1),
        ("mi300xx8", "AMD Instinct MI300X", 8),
        ("cpu", "16 CPU threads", 1),
        ("cpux2", "2 CPU threads", 1),
    ],
)
def test_names(name, device, count):
    found = hardware(name, threads=16)
    assert (found.device.name, found.count, found.service) == (device, count, False)


def test_a_service_has_no_devices():
    found = hardware("tinker")
    assert found.service and found.device is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h20x8", "did you mean `h200`?"),
        ("tinkr", "did you mean `tinker`?"),
        ("h200x0", "found 0 devices"),
        ("h200x99999", "found 99999 devices"),
        ("", "there is no ``"),
        ("h200 x8", "there is no `h200 x8`"),
    ],
)
def test_names_that_are_none(name, words):
    with pytest.raises(UsageError) as error:
        hardware(name)
    assert words in error.value.message


def test_the_catalog_has_no_price_and_no_rate_with_sparsity():
    """Ratios that hold for every device: bfloat16 is faster than float32, and no dense rate of today is above 3 PFLOP/s."""
    text = (PLANS.parent / "ablation" / "plan" / "hardware.yaml").read_text()
    assert "price:" not in text and "$" not in text
    for device in catalog().values():
        assert 1e12 < device.flops["float32"] < device.flops["bfloat16"] < 3e15, device
        assert 1e10 < device.memory < 3e11 and 1e11 < device.bandwidth < 1e13 and 1e10 < device.link < 1e12
        assert device.source


def test_assumptions_can_be_changed():
    assert Assumed().changed(["decode_use=0.5", "step_ms=2"]) == Assumed(decode_use=0.5, step_ms=2.0)
    assert hardware("cpux2", assumed=Assumed(cpu_gflops=7)).device.flops["float32"] == 14e9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("decode_us=0.5", "did you mean `decode_use`?"),
        ("decode_use", "a number from 1e-06 to 1 "),
        ("decode_use=1e-320", "found `1e-320`; a number from 1e-06 to 1 "),  # bytes / (rate x 1e-320) is infinite
        ("cpu_gbps=1e-300", "a number from 1e-06 to 1e+09"),
        ("step_ms=" + "1" * 5000, f"found `{'1' * 40}`"),
        ("decode_use=1.5", "found `1.5`"),
        ("step_ms=-1", "found `-1`"),
        ("step_ms=nan", "found `nan`"),
    ],
)
def test_assumptions_that_cannot_be(text, words):
    with pytest.raises(UsageError) as error:
        Assumed().changed([text])
    assert words in error.value.message


def test_the_studys_model_by_hand():
    """64 layers, of which 16 have full attention: 24 heads of 256 with a gate, 4 key heads; 48 have a state of 48 heads of 128 x 128."""
    shape = shape_of(CONFIG, TESSERA)
    assert (shape.layers, shape.full, shape.linear) == (64, 16, 48)
    assert kv_bytes(shape, 2) == 16 * 2 * 4 * 256 * 2 == 65_536
    assert state_bytes(shape) == 48 * 48 * 128 * 128 * 4 == 150_994_944
    sums = {
        "q_proj": 16 * (5120 + 2 * 24 * 256),
        "k_proj": 16 * (5120 + 4 * 256),
        "v_proj": 16 * (5120 + 4 * 256),
        "o_proj": 16 * (24 * 256 + 5120),
        "in_proj_qkv": 48 * (5120 + 2 * 16 * 128 + 48 * 128),
        "in_proj_z": 48 * (5120 + 48 * 128),
        "out_proj": 48 * (48 * 128 + 5120),
        "gate_proj": 64 * (5120 + 17408),
        "up_proj": 64 * (5120 + 17408),
        "down_proj": 64 * (5120 + 17408),
        "lm_head": 5120 + 248320,
    }
    assert {name: rank_times(shape, name) for name in TESSERA.model.lora.targets} == sums
    assert adapter_parameters(TESSERA, shape) == 32 * sum(sums.values()) == 225_689_600
    # with 401 pairs, as the release says: 4 in each of 16 layers, 3 in each of 48, 3 in every one, and the output layer
    assert sum(shape.target(name)[2] for name in TESSERA.model.lora.targets) == 401


def test_what_is_assumed_where_no_config_is_at_hand():
    """Of the plan alone: linear attention in three layers of four (its targets name it), keys of 1,024, an MLP that gives the
    plan's parameters: ((27.8e9 - 2 x 248320 x 5120) / 64 - 2 x 5120 x (5120 + 1024)) / (3 x 5120) = 21,596."""
    shape = shape_of({}, TESSERA)
    assert (shape.full, shape.linear, shape.key_heads * shape.head_size, shape.inside) == (16, 48, 1024, 21_596)
    assert kv_bytes(shape, 2) == 65_536


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"hidden_size": -5}, "`hidden_size` is -5; a whole number from 1 to 1,000,000,000 is needed"),
        ({"num_hidden_layers": "x"}, "`num_hidden_layers` is x"),
        ({"num_hidden_layers": 1.5}, "`num_hidden_layers` is 1.5"),
        ({"num_key_value_heads": 0}, "`num_key_value_heads` is 0"),
        ({"vocab_size": True}, "`vocab_size` is True"),
        ({"head_dim": 10**30}, "`head_dim` is 1000000000"),
        ({"full_attention_interval": 0}, "`full_attention_interval` is 0"),
        ({"layer_types": ["linear_attention"] * 99}, "`layer_types` has 99 entries, and `num_hidden_layers` is 64"),
    ],
)
def test_a_config_with_sizes_that_cannot_be(own, words):
    found = wrong_in_config({"text_config": CONFIG["text_config"] | own})
    assert found is not None and found.startswith(words)
    assert wrong_in_config(CONFIG) is None and wrong_in_config({}) is None
    assert wrong_in_config({"text_config": [1]}) == "`text_config` is not a JSON object"


def test_a_model_without_linear_attention_is_as_before():
    shape = Shape(2, 8, 32, 2, 1, 4, 10)
    assert (shape.full, state_bytes(shape), kv_bytes(shape, 2)) == (2, 0, 2 * 2 * 4 * 2)
    assert shape.target("out_proj") == (8, 8, 2) and shape.target("lm_head") == (8, 10, 1)
