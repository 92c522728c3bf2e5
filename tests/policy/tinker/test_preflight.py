"""What the preflight finds of SkyRL's server, and that it refuses what a server would do otherwise in silence."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ablation.errors import IntegrityError, UsageError
from ablation.plan.arms import Adam
from ablation.plan.load import load_plan
from ablation.policy.base import SampleRequest, TrainRow
from ablation.policy.tinker.preflight import check_sampling, check_start, check_tokenizer, need_model
from ablation.policy.tinker.probe import Throwaway, check_adam_fields, check_optimizer, find_reductions, plain_step
from ablation.policy.tinker.weights import from_folder
from tests.policy.tinker.fixtures import PROMPT, on_service

pytestmark = pytest.mark.slow


def row_of(policy) -> TrainRow:
    (one,) = policy.sample([SampleRequest(PROMPT, 11)])
    ids, logprobs = np.resize(one.token_ids, 12), np.resize(one.logprobs, 12)
    return TrainRow(PROMPT, ids, logprobs, np.array([1.0, -0.5, 1, 1, -0.5, 1, 0, 0, 0, 0, 0, 0]))


def with_plan(served, **changes):
    plan = on_service(load_plan(served.plan).plan)
    return plan.model_copy(update=changes)


def test_what_is_found_of_this_server(proven):
    found = proven.found
    # SkyRL's jax backend divides by a row's targets and by the rows (skyrl/backends/jax.py), and Adam's fields are obeyed
    assert found["reduction"] == {"tokens": "mean", "rows": "mean"}
    assert found["two_rows"] == pytest.approx(1.0, abs=0.01)
    assert found["doubled_weights"] == pytest.approx(2.0, abs=0.02)
    assert found["no_weights"] == 0.0
    assert found["scale"] == pytest.approx(1.0, abs=0.01)
    assert found["leaves_gradients"] is True
    assert found["seeds"] == "honoured"
    assert found["norm_metric"] == "skyrl.ai/grad_norm"
    assert found["tokenizer"] == "same"
    assert found["mismatch"] < 1e-5
    assert found["new_adapter_mismatch"] < 1e-5 < 0.01 < found["old_adapter_mismatch"]
    assert found["resumed_off"] == 0.0
    assert (found["rank"], found["alpha"]) == (8, 32)
    assert found["tokens"]["train"] > 0
    json.dumps(found, allow_nan=False)  # it goes into the journal


def test_a_model_that_is_not_offered_is_refused_with_those_that_are(proven, served):
    with pytest.raises(UsageError, match="does not offer `Qwen/Qwen3-8B`; it offers .*base"):
        need_model(proven.service, "Qwen/Qwen3-8B")


def test_a_start_state_with_another_adapter_is_refused(make_policy, served):
    plan = on_service(load_plan(served.plan).plan)
    policy = make_policy(plan)
    probe = Throwaway(policy, served.start, optimizer=False)
    probe.step([row_of(policy)], plain_step(1e-3))
    moved = probe.save()
    probe.close()
    with pytest.raises(UsageError, match="is not the plan's start adapter: weight `.*lora_A.weight` differs by up to"):
        check_start(make_policy(plan, moved))


def test_another_rank_or_alpha_is_refused(make_policy, served):
    plan = with_plan(served)
    lora = plan.model.lora.model_copy(update={"alpha": 8})
    other = plan.model_copy(update={"model": plan.model.model_copy(update={"lora": lora})})
    with pytest.raises(UsageError, match=r"model.lora.alpha: the plan says 8; the service's adapter at .* has 32"):
        check_start(make_policy(other))


def test_modules_that_the_service_does_not_train_are_refused(make_policy, served):
    policy = make_policy()
    weights = dict(from_folder(served.model / "start-adapter"))
    weights["base_model.model.lm_head.lora_A.weight"] = np.zeros((8, 64), dtype=np.float32)
    policy.start = replace(policy.start, weights=weights)
    policy.reset()
    with pytest.raises(UsageError, match=r"the service's adapter has no lm_head; the plan's `model.lora.targets`"):
        check_start(policy)


def test_a_state_whose_optimizer_took_steps_is_no_start(make_policy, served):
    """A state stored after a step there and one back holds the start's weights almost, and other moments: a client from it with
    its optimizer is not fresh. SkyRL obeys `optimizer: false`, so the same state without its optimizer is."""
    policy = make_policy()
    policy.reductions = find_reductions(policy, row_of(policy))[0]
    row = row_of(policy)
    short = TrainRow(row.prompt_ids, row.token_ids[:6], row.sampler_logprobs[:6], row.weights[:6])
    probe = Throwaway(policy, served.start, optimizer=False)
    descent = probe.step([short], plain_step(1e-4), policy.reductions)
    probe.close()
    assert check_optimizer(policy, short, descent, 1e-3)["first_step_off"] < 1e-3
    with pytest.raises(UsageError, match="differs by .* of the learning rate from a fresh Adam's"):
        check_optimizer(policy, short, -descent, 1e-3)


def test_clipping_that_the_server_drops_is_refused_and_decay_that_reaches_others_too(make_policy, served):
    policy = make_policy()
    row = row_of(policy)
    assert check_adam_fields(policy, row, [Adam()]) == {}
    with pytest.raises(UsageError, match="max_grad_norm: the service drops it"):
        check_adam_fields(policy, row, [Adam(max_grad_norm=1.0)])
    with pytest.raises(UsageError, match="weight_decay: the service decays the weights of other adapters"):
        check_adam_fields(policy, row, [Adam(name="adamw", weight_decay=0.1)])


def test_another_tokenizer_is_refused(proven, served):
    from ablation.policy.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(served.model / "base")
    assert check_tokenizer(proven, tokenizer) == "same"
    tokenizer.add_tokens(["<|more|>"])
    with pytest.raises(UsageError, match=r"1 tokens differ, for instance '<\|more\|>'"):
        check_tokenizer(proven, tokenizer)


def test_values_of_the_plan_that_are_not_neutral_are_seen_to_work(make_policy, served):
    plan = with_plan(served)
    sampling = plan.sampling.model_copy(update={"temperature": 0.7, "top_k": 5, "top_p": 0.9})
    policy = make_policy(plan.model_copy(update={"sampling": sampling}))
    found, rows = check_sampling(policy, PROMPT)
    assert found["seeds"] == "honoured"
    assert len(rows) == 4


def test_a_bound_that_is_not_kept_is_refused(make_policy, served):
    policy = make_policy()
    policy.bound = 1e-12
    with pytest.raises(IntegrityError, match="preflight: what the service samples has logprobs .* nats from"):
        check_sampling(policy, PROMPT)
