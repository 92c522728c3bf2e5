"""The engine's process: what it says when it does not start, and that its death is an error and never a wait."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from dataclasses import replace

import pytest

from ablation.errors import EngineFailed, UsageError
from ablation.policy.base import SampleRequest

pytestmark = pytest.mark.slow


def requests_of(prompts, count, first=2**62):
    """Seeds beyond 2^62, as those of rollouts are."""
    return [SampleRequest(tuple(prompts[place % len(prompts)]), first + place) for place in range(count)]


def test_rollouts_come_back_as_asked_and_are_scored_alike_by_the_trainer(make_policy, prompts, plan):
    import numpy as np

    from ablation.policy.base import ScoreRow

    policy, told = make_policy(), []
    requests = requests_of(prompts, 12)
    sampled = policy.sample(requests, lambda done, tokens: told.append((done, tokens)))
    assert told[-1] == (12, sum(len(one.token_ids) for one in sampled))
    assert told == sorted(told)
    for one in sampled:
        assert one.finish_reason == ("stop" if one.token_ids[-1] == 6 else "length")
        assert (one.finish_reason == "length") == (len(one.token_ids) == plan.sampling.max_tokens and one.token_ids[-1] != 6)
    scored = policy.score([ScoreRow(request.prompt_ids, one.token_ids) for request, one in zip(requests, sampled, strict=True)])
    for mine, one in zip(scored, sampled, strict=True):
        assert np.abs(mine - one.logprobs).max() < 1e-4
        assert (one.top_entropy >= 0).all()
        assert (one.top_mass <= 1 + 1e-5).all()


def test_more_rollouts_than_the_engine_looks_ahead_all_come_back_once_and_in_order(make_policy, prompts):
    from ablation.policy.vllm.engine_process import AHEAD

    policy = make_policy()
    requests = requests_of(prompts, AHEAD * policy.plan.policy.vllm.sequences + 50)
    values, adapter, told = replace(policy.values, max_tokens=4), policy.hand_over(), []
    sampled = policy.sample_with(requests, values, adapter, lambda done, tokens: told.append(done))
    assert told[-1] == len(requests) == len(sampled) == 306
    last = policy.sample_with(requests[-3:], values, adapter)
    for one, other in zip(sampled[-3:], last, strict=True):
        assert abs(one.logprobs[0] - other.logprobs[0]) < 1e-4
        assert one.token_ids[0] == other.token_ids[0]


def test_entropy_and_mass_are_those_of_the_trainers_most_likely_tokens(make_policy, prompts, trainer):
    import numpy as np
    import torch

    policy = make_policy()
    (request,) = requests_of(prompts, 1)
    (one,) = policy.sample([request])
    ids = torch.tensor([[*request.prompt_ids, *one.token_ids.tolist()]])
    with torch.no_grad():
        logits = trainer.causal(input_ids=ids, use_cache=False).logits[0, len(request.prompt_ids) - 1 : -1]
    top = logits.double().log_softmax(-1).topk(20, dim=-1).values
    share = top.softmax(-1)
    assert np.allclose(one.top_mass, top.exp().sum(-1).numpy(), atol=1e-4)
    assert np.allclose(one.top_entropy, -(share * share.log()).sum(-1).numpy(), atol=1e-4)


def test_equal_prompts_with_different_seeds_are_different_streams(make_policy, prompts):
    policy = make_policy()
    sampled = policy.sample([SampleRequest(tuple(prompts[0]), seed) for seed in (100, 101, 102, 103, 100)])
    texts = [tuple(one.token_ids.tolist()) for one in sampled]
    assert texts[0] == texts[4]
    assert len(set(texts[:4])) >= 3


def test_an_adapter_in_the_name_of_its_digest_is_swapped_in_and_the_old_one_dropped(make_policy, trainer):
    policy = make_policy()
    first = policy.hand_over()
    assert policy.hand_over() is first
    trainer.set_weights({name: weight + 0.01 for name, weight in trainer.trainable.items()})
    second = policy.hand_over()
    assert second.name == f"adapter-{trainer.adapter_sha256()[:16]}"
    assert (second.name, second.number) != (first.name, first.number)
    from ablation.policy.vllm.messages import Sample

    with pytest.raises(Exception, match=f"adapter {first.name} is not loaded"):
        policy.engine.ask(Sample([(0, (3, 4), 1)], policy.values, first))


def test_an_engine_killed_while_it_samples_is_one_clear_error(make_policy, prompts):
    policy = make_policy()
    policy.hand_over()
    pid = policy.engine.pid
    threading.Timer(1.0, lambda: os.kill(pid, signal.SIGKILL)).start()
    started = time.monotonic()
    with pytest.raises(EngineFailed, match="was killed by SIGKILL .* while sampling") as raised:
        while True:
            policy.sample(requests_of(prompts, 64))
    assert time.monotonic() - started < 60
    assert "the same command goes on from here" in raised.value.hint
    assert policy.engine.log.is_file()
    shutil.rmtree(policy.engine.folder)


def test_a_context_beyond_the_models_is_refused_with_the_engines_reason(engines):
    engines.close()
    with pytest.raises(UsageError, match="vLLM does not start with this model and plan: .*max_model_len"):
        engines.get(context=100_000)


def test_a_model_that_vllm_does_not_have_is_refused_with_its_name(engines, base, tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(base, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["NobodysModelForCausalLM"]}))
    with pytest.raises(UsageError, match="NobodysModelForCausalLM"):
        engines.get(model=str(folder))


def test_a_rank_that_no_engine_takes_is_refused(engines):
    with pytest.raises(UsageError, match="LoRA rank 513 is greater than max_lora_rank 512"):
        engines.get(lora_rank=513)
