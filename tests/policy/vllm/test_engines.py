"""The real engine again and again: among others, after a restart, with cached prefixes, several of them, and split over processes.

Nothing promises that equal seeds give equal texts (F03), and nothing here does: the shares are printed. What is promised is that the
engine's logprobs of what it sampled are the trainer's, within the bound, however it was sampled.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from ablation.errors import EngineFailed, UsageError
from ablation.policy.base import SampleRequest, ScoreRow, TrainRow
from ablation.policy.vllm.messages import Load, SamplingValues, Sleep

from .test_client import requests_of

pytestmark = pytest.mark.slow

CELLS = 3


def share_equal(some, others) -> float:
    return float(np.mean([np.array_equal(one.token_ids, other.token_ids) for one, other in zip(some, others, strict=True)]))


def within_the_bound(policy, requests, sampled) -> bool:
    rows = [ScoreRow(request.prompt_ids, one.token_ids) for request, one in zip(requests, sampled, strict=True)]
    pairs = zip(policy.trainer.score(rows), sampled, strict=True)
    return all(np.abs(trainer - one.logprobs).max() <= policy.bound for trainer, one in pairs)


def test_f03_alone_among_others_after_a_restart_and_with_cached_prefixes(make_policy, engines, prompts, record_property):
    policy = make_policy()
    requests, others = requests_of(prompts, CELLS), requests_of(prompts, 50, first=2**61)
    alone = policy.sample(requests)
    among = policy.sample(others[:25] + requests + others[25:])[25 : 25 + CELLS]
    engines.close()
    after = make_policy().sample(requests)
    cached = make_policy(prefix_caching=True)
    assert cached.engine_record()["vllm_prefix_caching"] and not policy.engine_record()["vllm_prefix_caching"]
    prefixed = [cached.sample(requests), cached.sample(requests)]  # the second finds what the first left
    for name, sampled in {"among": among, "after": after, "cached": prefixed[0], "again": prefixed[1]}.items():
        assert within_the_bound(policy, requests, sampled), name
        record_property(f"share equal to alone, {name}", share_equal(alone, sampled))
        print(f"{name}: {share_equal(alone, sampled):.0%} of {CELLS} rollouts as when sampled alone")
    assert within_the_bound(policy, requests, alone)


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_f08_two_arms_at_one_path_never_share_an_adapter_or_a_prefix(make_policy, trainer, prompts, prefix_caching):
    """Arm 2's adapter is all zeros: whatever it shared with arm 1 would show as something else than the base."""
    policy = make_policy(prefix_caching=prefix_caching)
    values = SamplingValues(1.0, 1.0, 0, 24, 20, ())
    requests = requests_of(prompts, 8)
    trainer.set_weights({name: weight + 0.02 for name, weight in trainer.trainable.items()})
    first = policy.hand_over()
    arm_1 = policy.sample_with(requests, values, first)
    arm_1_again = policy.sample_with(requests, values, first)  # from cached prefixes, if there are any
    assert within_the_bound(policy, requests, arm_1) and within_the_bound(policy, requests, arm_1_again)
    trainer.set_weights({name: weight * 0 for name, weight in trainer.trainable.items()})
    second = policy.hand_over()
    assert (first.name, first.number) != (second.name, second.number), "whatever path they were saved to"
    arm_2, base = policy.sample_with(requests, values, second), policy.sample_with(requests, values, None)
    assert within_the_bound(policy, requests, arm_2) and within_the_bound(policy, requests, base)
    for one, other in zip(arm_2, base, strict=True):
        same = np.minimum.accumulate(one.token_ids == other.token_ids)
        assert same[0] and np.abs(one.logprobs - other.logprobs)[same].max() <= policy.bound
    assert share_equal(arm_1, arm_2) < 1


def test_restarting_between_sampling_and_training_changes_no_bit_of_what_is_trained(make_policy, engines, trainer, prompts):
    from ablation.policy.vllm.turns import Turns

    told = []
    policy = make_policy()
    first = policy.engine
    policy.turns = Turns(trainer, engines.get, "restart", engine=first, tell=told.append)
    requests = requests_of(prompts, 6)
    sampled = policy.sample(requests)
    rows = [
        TrainRow(request.prompt_ids, one.token_ids, one.logprobs, np.full(len(one.token_ids), 0.5 if place % 2 else -0.5))
        for place, (request, one) in enumerate(zip(requests, sampled, strict=True))
    ]
    scored = policy.score([ScoreRow(row.prompt_ids, row.token_ids) for row in rows])
    assert not first.alive, "the engine is gone before the trainer works"
    stats = policy.update(rows, 1e-3)
    after = policy.adapter_sha256()
    again = policy.sample(requests)  # starts, takes the new adapter, and the canary has proven it
    assert policy.engine is not first and policy.engine.alive and policy.turns.count == 1
    assert within_the_bound(policy, requests, again)
    assert policy.adapter_sha256() == after
    assert policy.turns.record()["seconds"]["start"] > 0
    trainer.reset()
    for mine, theirs in zip(scored, trainer.score([ScoreRow(row.prompt_ids, row.token_ids) for row in rows]), strict=True):
        assert np.array_equal(mine, theirs)
    assert trainer.update(rows, 1e-3) == stats
    assert trainer.adapter_sha256() == after, "together and in turns train the same from the same rollouts"


def test_an_engine_that_was_not_started_for_it_refuses_to_sleep(make_policy):
    from ablation.policy.vllm.client import EngineRefused

    with pytest.raises(EngineRefused, match="not started with sleep mode"):
        make_policy().engine.ask(Sleep())


class TestAskedBeforeALock:
    """`plan lock` asks the engine: an adapter on each kind of module is loaded and changes what is sampled, or the lock is refused."""

    def test_every_target_of_the_plan_has_an_effect(self, engines, plan, prompts):
        from ablation.study.ask_engine import effect_of

        for target in plan.model.lora.targets:
            assert effect_of(engines.get(), plan, start_adapter(), target, prompts) >= 8 * 1e-3, target

    def test_a_module_that_the_engine_ignores_refuses_the_lock(self, engines, plan, prompts):
        from ablation.study.ask_engine import effect_of, write_adapter

        class Ignoring:
            """Takes the adapter, and loads one without `lm_head`."""

            facts = engines.get().facts

            def ask(self, request, told=None):
                if isinstance(request, Load):
                    write_adapter(start_adapter(), Path(request.adapter.folder), None, 0.0)
                return engines.get().ask(request, told)

        with pytest.raises(
            UsageError, match=r"model.lora.targets: vLLM 0\.32.* takes an adapter on `lm_head` and ignores it"
        ) as raised:
            effect_of(Ignoring(), plan, start_adapter(), "lm_head", prompts)
        assert "Nothing was locked" in raised.value.hint

    def test_what_the_engine_will_not_load_refuses_the_lock_with_its_words(self, engines, plan, prompts, tmp_path):
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        from ablation.study.ask_engine import effect_of

        model = AutoModelForCausalLM.from_pretrained(engines.get().settings.model)
        get_peft_model(model, LoraConfig(r=9, target_modules=["q_proj"])).save_pretrained(tmp_path)
        with pytest.raises(
            UsageError, match="model.lora: .* does not take an adapter .*: LoRA rank 9 is greater than max_lora_rank 8"
        ):
            effect_of(engines.get(), plan, tmp_path, "q_proj", prompts)


def test_sleep_mode_on_the_cpu_build_is_refused_in_vllms_own_words(engines):
    engines.close()
    with pytest.raises(UsageError, match=r"[Ss]leep mode is not supported"):
        engines.get(sleep=True)


def start_adapter() -> Path:
    from .conftest import TINY

    return TINY / "start-adapter"


def test_two_engines_share_a_stage_by_place_each_proven_and_end_together(engines, make_policy, plan, base, trainer, prompts):
    from ablation.policy.vllm.devices import on_own_devices
    from ablation.policy.vllm.policy import VllmPolicy, engine_settings
    from ablation.policy.vllm.replicas import EngineGroup

    engines.close()
    cores = sorted(os.sched_getaffinity(0))
    group = EngineGroup(on_own_devices(engine_settings(plan, base), 2, [], cores))
    try:
        if len(cores) > 1:
            assert [os.sched_getaffinity(pid) for pid in group.pids] == [{cores[0]}, {cores[1]}]
        trainer.reset()
        policy, told = VllmPolicy(plan, trainer, group, (6,), prompts), []
        assert policy.engine_record()["vllm_replicas"] == 2
        requests = requests_of(prompts, 9)
        asked = []
        for client in group.clients:
            client.ask = lambda request, told=None, own=client, ask=client.ask: (
                asked.append((own.pid, request)),
                ask(request, told),
            )[1]
        sampled = policy.sample(requests, lambda done, tokens: told.append((done, tokens)))
        assert within_the_bound(policy, requests, sampled)
        assert told[-1] == (9, sum(len(one.token_ids) for one in sampled)) and told == sorted(told)
        keys = {pid: [row[0] for row in request.rows] for pid, request in asked if getattr(request, "rows", None)}
        assert list(keys[pid] for pid in group.pids) == [[0, 2, 4, 6, 8], [1, 3, 5, 7]]
        loaded = {pid: request.adapter.name for pid, request in asked if isinstance(request, Load)}
        assert set(loaded) == set(group.pids) and len(set(loaded.values())) == 1, "each of them got the adapter"
        canary = policy.compare(policy.hand_over(), 2, 8)
        assert canary.copies == 2 and [len(one.sampler) for one in canary.engines()] == [16, 16]
        threading.Timer(1.0, lambda: os.kill(group.pids[1], signal.SIGKILL)).start()
        with pytest.raises(EngineFailed, match="was killed by SIGKILL .* while sampling"):
            while True:
                policy.sample(requests_of(prompts, 64))
        assert not group.alive and not any(client.alive for client in group.clients), "none of them stays"
    finally:
        group.kill()
        for client in group.clients:
            shutil.rmtree(client.folder, ignore_errors=True)


def test_layers_split_over_two_processes_sample_what_is_trained_and_end_with_the_engine(engines, make_policy, prompts):
    policy = make_policy(tensor_parallel=2)
    workers = children(policy.engine.pid)
    assert len(workers) >= 2
    requests = [SampleRequest(tuple(prompts[place]), place) for place in range(4)]
    assert within_the_bound(policy, requests, policy.sample(requests))
    engines.close()
    assert not [pid for pid in workers if alive(pid)]


def children(pid: int) -> list[int]:
    found = [one for threads in Path(f"/proc/{pid}/task").glob("*/children") for one in threads.read_text().split()]
    return [int(one) for one in found]


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
