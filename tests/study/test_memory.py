"""Who shares a device with whom, decided from numbers alone."""

from __future__ import annotations

import json

import pytest
import yaml

from ablation.errors import UsageError
from ablation.memory import cgroup_free
from ablation.plan.model import Plan
from ablation.policy.memory import Estimate
from ablation.study.memory import Device, as_record, choose_turns, memory_table
from tests.study.mini import ROOT

GB = 10**9


def plan() -> Plan:
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    tree["policy"] = {"backend": "vllm", "vllm": {"kv_cache_gb": 20}}
    return Plan.model_validate(tree)


def estimate(engines_here=1, kv_of_one=GB, kv=20 * GB, activations=10 * GB, idle=GB):
    trainer = {"weights": 54 * GB, "adapter": 2 * GB, "activations": activations, "process": GB}
    engine = {"weights": 54 * GB, "adapter": GB, "kv cache": kv, "activations": 3 * GB, "process": 2 * GB}
    return Estimate(trainer, idle, engine, engines_here, 33_000, kv_of_one, kv)


def on(kind, free, host=500):
    return Device("a device", kind, None if free is None else free * GB, host * GB)


def test_sums_by_hand():
    found = estimate()
    assert found.together == (67 + 80) * GB
    assert found.in_turns == (1 + 80) * GB
    assert estimate(engines_here=2).together == (67 + 160) * GB
    assert estimate(engines_here=0).in_turns == 67 * GB
    assert found.at_once == 20


@pytest.mark.parametrize(
    "device, mode, why",
    [
        (on("cuda", 150), "together", "both need about 147 GB; a device has 150 GB free"),
        (on("cuda", 140), "sleep", "both need about 147 GB; a device has 140 GB free"),
        (on("cuda", 140, host=100), "restart", "host memory is short of the weights of a sleeping engine"),
        (on("cpu", 140), "restart", "both need about 147 GB"),
        (on("cpu", None), "together", "does not say"),
    ],
)
def test_auto_takes_the_quickest_that_fits_and_says_why(device, mode, why):
    chosen = choose_turns(plan(), estimate(), device, "auto")
    assert chosen.mode == mode and why in chosen.why
    assert chosen.quickest == (mode == "sleep"), "sleeping and restarting are measured, and the quicker one stays"


def test_engines_on_gpus_of_their_own_need_no_turns():
    assert choose_turns(plan(), estimate(engines_here=0), on("cuda", 70), "auto").mode == "together"


def test_what_is_asked_for_is_done_if_it_can_be():
    assert choose_turns(plan(), estimate(), on("cuda", 150), "restart").mode == "restart"
    assert choose_turns(plan(), estimate(), on("cuda", 90), "sleep").mode == "sleep"
    with pytest.raises(UsageError, match="--turns sleep: an engine on the CPU has no sleep mode") as raised:
        choose_turns(plan(), estimate(), on("cpu", 500), "sleep")
    assert "--turns restart" in raised.value.hint
    with pytest.raises(
        UsageError, match="memory: trainer and engine together need about 147 GB; a device has 90 GB free"
    ) as raised:
        choose_turns(plan(), estimate(), on("cuda", 90), "together")
    assert "--turns restart" in raised.value.hint


def test_what_cannot_fit_is_refused_with_the_field_that_takes_most():
    with pytest.raises(UsageError, match=r"in turns need about 81.* the engine's weights .*: lower model.base, model.dtype or"):
        choose_turns(plan(), estimate(), on("cuda", 50), "auto")
    with pytest.raises(UsageError, match="the engine's kv cache .*: lower policy.vllm.kv_cache_gb"):
        choose_turns(plan(), estimate(kv=100 * GB), on("cuda", 80), "auto")
    with pytest.raises(
        UsageError, match="the trainer's activations .*: lower training.micro_batch_tokens or sampling.max_tokens"
    ):
        choose_turns(plan(), estimate(activations=300 * GB), on("cuda", 80), "auto")
    assert choose_turns(plan(), estimate(), on("cuda", 65), "restart"), "an estimate may be off by a quarter"


def test_a_rollout_that_the_kv_cache_cannot_hold_is_refused_before_anything_is_loaded():
    with pytest.raises(
        UsageError, match=r"policy.vllm.kv_cache_gb: 20 GB hold no rollout of 33000 tokens .* need 21 GB"
    ) as raised:
        choose_turns(plan(), estimate(kv_of_one=21 * GB), on("cuda", 500), "auto")
    assert raised.value.hint == "Nothing was loaded."


def test_the_table_has_every_part_of_both():
    record = as_record(estimate(), on("cuda", 150))
    assert json.loads(json.dumps(record)) == record
    table = memory_table(record)
    assert [line.split() for line in table[1:4]] == [
        ["weights", "54", "GB", "54", "GB"],
        ["adapter", "2.00", "GB", "1.00", "GB"],
        ["activations", "10", "GB", "3.00", "GB"],
    ]
    assert any(line.split() == ["sum", "67", "GB", "80", "GB"] for line in table)
    assert table[-2].strip() == "together 147 GB, in turns 81 GB; a device has 150 GB free"
    assert table[-1].strip() == "a rollout of 33000 tokens takes 1.00 GB of the KV cache; 20 fit at one time"


def test_the_limit_of_a_control_group_counts(tmp_path):
    assert cgroup_free(tmp_path) is None
    (tmp_path / "memory.max").write_text("4000000000\n")
    (tmp_path / "memory.current").write_text("1500000000\n")
    assert cgroup_free(tmp_path) == 2_500_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert cgroup_free(tmp_path) is None
    older = tmp_path / "memory"
    older.mkdir()
    (older / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (older / "memory.usage_in_bytes").write_text("5\n")
    assert cgroup_free(tmp_path) is None
