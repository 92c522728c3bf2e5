"""What is decided of a plan's own engines before one is started; no vLLM is needed to decide it."""

from __future__ import annotations

import pytest
import yaml

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.policy.vllm import devices
from ablation.study.machine import Machine
from ablation.study.offline import Offline
from tests.study.mini import ROOT

BASE = ROOT / "ablation" / "assets" / "tiny-reasoner" / "base"
PROMPTS = [(3, 4, 5), (3,) * 20]


class Said(list):
    def say(self, message):
        self.append(message)


def offline(said=None, asked="auto", max_tokens=64, processes=1, **vllm):
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    tree["policy"] = {"backend": "vllm", "vllm": {"kv_cache_gb": 0.05, "eager": True, "sequences": 64} | vllm}
    tree["sampling"] |= {"max_tokens": max_tokens}
    return Offline(
        Plan.model_validate(tree), BASE, PROMPTS, Machine(asked, processes=processes), Said() if said is None else said
    )


def test_a_small_model_fits_beside_its_trainer_and_it_is_said():
    said = Said()
    found = offline(said)
    assert found.chosen.mode == "together"
    assert len(said) == 1 and said[0].startswith("turns of trainer and engine: together (both need about 1.")
    assert found.estimate.longest == 20 + 64
    assert [one.sleep for one in found.settings] == [False]


def test_replicas_are_as_many_settings():
    assert len(offline(replicas=2).settings) == 2


def test_what_cannot_be_is_refused_before_anything_starts(monkeypatch):
    with pytest.raises(UsageError, match="--turns sleep: an engine on the CPU has no sleep mode"):
        offline(asked="sleep")
    with pytest.raises(UsageError, match="policy.vllm.kv_cache_gb: 1e-05 GB hold no rollout of 84 tokens"):
        offline(kv_cache_gb=1e-5)
    with pytest.raises(UsageError, match=r"together need about .* lower policy.vllm.kv_cache_gb"):
        offline(asked="together", kv_cache_gb=1e6)
    with pytest.raises(UsageError, match=r"in turns need about .* lower policy.vllm.kv_cache_gb"):
        offline(kv_cache_gb=1e6)
    monkeypatch.setattr(devices, "gpu_count", lambda: 3)
    with pytest.raises(UsageError, match="2 replicas with tensor_parallel 2 need 4 GPUs; this process sees 3"):
        offline(replicas=2, tensor_parallel=2)


def test_on_gpus_an_engine_can_be_put_to_sleep_and_the_trainer_keeps_the_first_one_if_it_can(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "gpu_count", lambda: 1)
    one = offline(asked="sleep")
    assert [(settings.devices, settings.sleep) for settings in one.settings] == [("0", True)]
    assert one.estimate.engines_here == 1
    monkeypatch.setattr(devices, "gpu_count", lambda: 3)
    two = offline(replicas=2)
    assert [settings.devices for settings in two.settings] == ["1", "2"]
    assert two.estimate.engines_here == 0 and two.chosen.why == "the engine has GPUs of its own"


def test_a_trainer_that_is_divided_over_gpus_stays_on_them(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "gpu_count", lambda: 4)
    beside = offline(processes=3)
    assert (beside.chosen.mode, beside.estimate.engines_here) == ("together", 0)
    assert beside.settings[0].devices == "3"
    shared = offline(processes=4)
    assert (shared.chosen.mode, shared.estimate.engines_here) == ("together", 1)
    with pytest.raises(UsageError, match="--turns sleep: a trainer that is divided over GPUs stays on them"):
        offline(asked="sleep", processes=4)
    assert offline(asked="sleep").chosen.mode == "sleep"
