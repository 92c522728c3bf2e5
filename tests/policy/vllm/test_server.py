"""A real server as the sampler: what is proven of an engine holds for it, and no adapter ever gets another one's cached prompts."""

from __future__ import annotations

import urllib.request

import numpy as np
import pytest

from ablation.plan.model import Plan
from ablation.policy.base import SampleRequest, ScoreRow
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import Adapter, Load, SamplingValues
from tests.policy.vllm.conftest import END, TINY

pytestmark = pytest.mark.slow


@pytest.fixture
def at_server(server_engine, tree, base, trainer, prompts):
    """A policy on the server, holding the start adapter."""
    from ablation.policy.vllm.policy import VllmPolicy, engine_settings
    from ablation.policy.vllm.server import ServerClient
    from ablation.policy.vllm.server_checks import Needs

    plan = Plan.model_validate(
        tree | {"policy": {"backend": "vllm", "threads": 1, "vllm": {"engine": "server", "sequences": 64}}}
    )
    needs = Needs(8, 20, None, 128, tuple(prompts[0]), trainer.causal.get_input_embeddings().num_embeddings)
    client = ServerClient(server_engine, engine_settings(plan, base), needs)
    trainer.reset()
    yield VllmPolicy(plan, trainer, client, (END,), prompts)
    client.close()


def test_the_preflight_passes_although_the_server_reads_a_ruinous_generation_config(at_server, plan):
    from ablation.policy.vllm.preflight import preflight

    found = preflight(at_server)
    assert found["mismatch"] < 1e-5
    assert found["mismatch_base"] < 1e-5
    assert found["zero_adapter_changes"] < 1e-5
    assert list(found["targets"]) == list(plan.model.lora.targets)
    assert found["sampled_evidence"] < 4
    facts = at_server.engine.facts
    assert (facts["vllm"], facts["context"], facts["prefix_caching"], facts["seeds"]) == ("0.32.0", 512, True, "honoured")
    record = at_server.engine_record()
    assert record["vllm_engine"] == "server"
    assert record["vllm_fingerprint"].startswith("vllm-0.32.0-")


def test_the_base_is_proven_with_another_runs_adapter_left_in_the_servers_memory(at_server, trainer):
    """vLLM's CPU build adds an lm_head adapter that is left there to requests without one: nothing of a run is such a request."""
    from ablation.policy.vllm.preflight import _base

    trainer.set_weights({name: weight + (3 if "lm_head" in name else 0) for name, weight in trainer.trainable.items()})
    at_server.hand_over()
    assert _base(at_server)["mismatch_base"] < 1e-5


def test_rollouts_are_those_that_the_trainer_scores(at_server, prompts):
    requests = [SampleRequest(tuple(prompts[place % len(prompts)]), 2**62 + place) for place in range(24)]
    told = []
    sampled = at_server.sample(requests, lambda finished, tokens: told.append((finished, tokens)))
    assert told[-1] == (24, sum(len(one.token_ids) for one in sampled))
    assert told == sorted(told)
    for one in sampled:
        assert one.finish_reason == ("stop" if one.token_ids[-1] == END else "length")
        assert one.stop_id == (END if one.finish_reason == "stop" else None)
    rows = [ScoreRow(request.prompt_ids, one.token_ids) for request, one in zip(requests, sampled, strict=True)]
    for mine, one in zip(at_server.score(rows), sampled, strict=True):
        assert np.abs(mine - one.logprobs).max() < 1e-4


def long_requests(prompts):
    """Prompts of more than one block of the cache, each asked for twice."""
    whole = [token for prompt in prompts for token in prompt]
    return [SampleRequest(tuple(whole[:140] if place < 2 else [*whole[7:], *whole[:7]][:140]), place) for place in range(4)]


def hits(address):
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:prefix_cache_hits_total"))


def furthest(policy, requests, adapter):
    """Largest distance (nats) of the server's logprobs from the trainer's."""
    sampled = policy.sample_with(requests, SamplingValues(1.0, 1.0, 0, 12, 20, ()), adapter)
    rows = [ScoreRow(request.prompt_ids, one.token_ids) for request, one in zip(requests, sampled, strict=True)]
    scored = policy.score(rows)
    return max(float(np.abs(mine - one.logprobs).max()) for mine, one in zip(scored, sampled, strict=True))


def changed(trainer, size):
    """The start adapter with other values and keys, so that what is cached of a prompt is another thing."""
    trainer.reset()
    trainer.set_weights(
        {name: weight + (size if "v_proj" in name or "k_proj" in name else 0) for name, weight in trainer.trainable.items()}
    )
    return trainer.adapter_sha256()


def test_cached_prompts_of_one_adapter_are_not_those_of_another(at_server, server_engine, trainer, prompts):
    requests = long_requests(prompts)
    for size in (0.0, 0.1, 0.0):
        adapter = at_server.load_into_engine(changed(trainer, size))
        before = hits(server_engine)
        assert furthest(at_server, requests, adapter) < 1e-4
        assert furthest(at_server, requests, adapter) < 1e-4
        assert hits(server_engine) > before, "nothing was cached, so nothing was tested"


def test_an_adapter_reloaded_under_the_same_name_is_the_new_one(at_server, server_engine, trainer, prompts):
    requests, names = long_requests(prompts), set()
    for size in (0.0, 0.1):
        changed(trainer, size)
        adapter = at_server.load_into_engine("0" * 64)  # the name is made of this
        names.add(adapter.name)
        before = hits(server_engine)
        assert furthest(at_server, requests, adapter) < 1e-4
        assert furthest(at_server, requests, adapter) < 1e-4
        assert hits(server_engine) > before
    assert len(names) == 1


def test_an_adapter_of_too_high_a_rank_is_refused_by_name_and_the_next_one_taken(at_server, base, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=9, target_modules=["q_proj"])).save_pretrained(
        tmp_path
    )
    with pytest.raises(EngineRefused, match="LoRA rank 9 is greater than max_lora_rank 8"):
        at_server.engine.ask(Load(Adapter("nine", 9, str(tmp_path))))
    at_server.engine.ask(Load(Adapter("start", 8, str(TINY / "start-adapter"))))


def test_a_prompt_beyond_the_context_is_refused_in_the_servers_words(at_server):
    from ablation.errors import EngineFailed

    with pytest.raises(EngineFailed, match=r"refused to sample: .*longer than the maximum model length of 512"):
        at_server.sample_with([SampleRequest((5,) * 600, 1)], at_server.values, None)
