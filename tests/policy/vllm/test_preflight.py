"""The preflight on the real engine: it passes what is right, and finds each of the ways in which it can be wrong in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ablation.errors import IntegrityError, UsageError
from ablation.plan.model import Plan
from ablation.policy.vllm.messages import Adapter
from tests.policy.vllm.conftest import END, TINY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def VllmPolicy():
    from ablation.policy.vllm.policy import VllmPolicy

    return VllmPolicy


def check(policy):
    from ablation.policy.vllm.preflight import preflight

    return preflight(policy)


def test_a_right_set_up_passes_although_the_folder_has_a_ruinous_generation_config(make_policy, plan):
    found = check(make_policy())
    assert found["mismatch"] < 1e-5
    assert found["mismatch_base"] < 1e-5
    assert found["zero_adapter_changes"] == 0
    assert list(found["targets"]) == list(plan.model.lora.targets)
    for effect in found["targets"].values():
        assert effect["changes"] > 0.008
        assert effect["mismatch"] < 1e-4
    assert "lm_head" in found["targets"]
    assert found["sampled_evidence"] < 4
    assert found["longest_at_once"] == found["kv_tokens"] // found["longest_rollout"]
    assert 0 <= found["same_seed_identical"] <= 1


def test_it_leaves_the_trainer_as_it_was(make_policy, trainer):
    policy = make_policy()
    before = trainer.adapter_sha256()
    check(policy)
    assert trainer.adapter_sha256() == before


def test_an_engine_that_ignores_the_adapter_is_found(make_policy, VllmPolicy):
    class Ignores(VllmPolicy):
        def sample_with(self, requests, values, adapter, progress=None):
            return super().sample_with(requests, values, None, progress)

    with pytest.raises(IntegrityError, match="preflight: an adapter on `q_proj` alone changes the trainer's logprobs"):
        check(make_policy(Ignores))


def test_an_engine_that_ignores_lm_head_alone_is_found(make_policy, VllmPolicy):
    with pytest.raises(IntegrityError, match="vLLM ignores `lm_head`"):
        check(make_policy(without("lm_head", VllmPolicy)))


def without(target, VllmPolicy):
    """A policy whose engine never gets what the adapter has on modules named `target`."""

    class Without(VllmPolicy):
        def load_into_engine(self, digest):
            whole = {name: weight.detach().clone() for name, weight in self.trainer.trainable.items()}
            self.trainer.set_weights(
                {name: torch.zeros_like(weight) if f".{target}." in name else weight for name, weight in whole.items()}
            )
            try:
                return super().load_into_engine(digest)
            finally:
                self.trainer.set_weights(whole)

    return Without


def test_an_old_adapter_under_the_name_of_a_new_one_is_found(make_policy, VllmPolicy):
    class Stale(VllmPolicy):
        kept: Adapter | None = None

        def load_into_engine(self, digest):
            self.kept = self.kept or super().load_into_engine(digest)
            return self.kept

    policy = make_policy(Stale)
    policy.hand_over()
    policy.trainer.set_weights({name: weight + 0.02 for name, weight in policy.trainer.trainable.items()})
    with pytest.raises(IntegrityError, match="for the trainer, and not at all for vLLM: it goes on with an old adapter"):
        policy.hand_over()
    policy.trainer.set_weights({name: weight + 0.5 for name, weight in policy.trainer.trainable.items()})
    with pytest.raises(IntegrityError, match="it does not sample what is trained"):
        policy.hand_over()


def test_another_base_than_the_trainers_is_found(make_policy, trainer):
    policy = make_policy()
    weight = trainer.causal.get_base_model() if hasattr(trainer.causal, "get_base_model") else trainer.causal
    norm = weight.model.norm.weight
    kept = norm.detach().clone()
    with torch.no_grad():
        norm.mul_(1.05)
    try:
        with pytest.raises(IntegrityError, match="without an adapter, against the trainer's base, .* it is another model"):
            check(policy)
    finally:
        with torch.no_grad():
            norm.copy_(kept)


@pytest.mark.parametrize("values", [{"top_k": 1}, {"repetition_penalty": 1.8}, {"temperature": 0.2}])
def test_values_of_a_generation_config_that_are_sampled_with_are_found(make_policy, VllmPolicy, values):
    class Folder(VllmPolicy):
        def sample_with(self, requests, asked, adapter, progress=None):
            planned = bool(asked.end_ids)  # the others are the preflight's own
            return super().sample_with(requests, replace(asked, **values) if planned else asked, adapter, progress)

    with pytest.raises(IntegrityError, match=r"tokens that vLLM sampled are 10\^\d+ times likelier .* than under the plan's"):
        check(make_policy(Folder))


def test_an_adapter_of_a_higher_rank_than_the_engine_was_started_for_is_refused_by_name(make_policy, tmp_path, trainer):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from ablation.policy.vllm.client import EngineRefused
    from ablation.policy.vllm.messages import Load

    policy = make_policy()
    model = AutoModelForCausalLM.from_pretrained(policy.engine.settings.model)
    get_peft_model(model, LoraConfig(r=9, target_modules=["q_proj"])).save_pretrained(tmp_path)
    with pytest.raises(EngineRefused, match="LoRA rank 9 is greater than max_lora_rank 8"):
        policy.engine.ask(Load(Adapter("nine", 9, str(tmp_path))))
    policy.hand_over()  # it lives, and takes the next one


def test_a_plan_whose_longest_rollout_does_not_fit_is_refused(make_policy, tree):
    long = Plan.model_validate(tree | {"sampling": tree["sampling"] | {"max_tokens": 500}})
    with pytest.raises(
        UsageError, match=r"policy.vllm.context: 512 tokens; the longest prompt and `sampling.max_tokens` need 5\d\d"
    ):
        check(make_policy(plan=long))


def test_logprobs_after_top_k_are_not_taken_for_raw_ones(make_policy):
    with pytest.raises(IntegrityError, match="logprobs after temperature, top-k and top-p, and raw ones are needed"):
        check(make_policy(logprobs_mode="processed_logprobs"))


def test_in_bfloat16_a_right_set_up_passes_and_an_engine_that_ignores_one_module_is_found(make_policy, tree, base, VllmPolicy):
    from ablation.policy.local import LocalPolicy

    tree = tree | {"model": tree["model"] | {"dtype": "bfloat16"}}
    plan = Plan.model_validate(tree)
    set_up = {"plan": plan, "trainer": LocalPolicy(plan, base, TINY / "start-adapter", (END,), 0), "dtype": "bfloat16"}
    found = check(make_policy(**set_up))
    assert 1e-5 < found["mismatch"] < found["bound"] == 0.05
    for effect in found["targets"].values():
        assert effect["changes"] >= 8 * 0.05
        assert effect["mismatch"] <= effect["changes"] / 4
    with pytest.raises(IntegrityError, match="vLLM ignores `k_proj`"):
        check(make_policy(without("k_proj", VllmPolicy), **set_up))
