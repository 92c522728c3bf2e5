"""Whether the longest rollout fits the engine that came up, and what the message tells to do; no vLLM is needed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ablation.errors import UsageError
from ablation.policy.vllm.preflight import _memory


def policy(context, kv_tokens, longest_prompt=50, max_tokens=200, kv_cache_gb=0.05):
    plan = SimpleNamespace(policy=SimpleNamespace(vllm=SimpleNamespace(kv_cache_gb=kv_cache_gb)))
    engine = SimpleNamespace(facts={"kv_tokens": kv_tokens, "context": context})
    return SimpleNamespace(
        plan=plan, engine=engine, prompts=[(1,) * 20, (1,) * longest_prompt], values=SimpleNamespace(max_tokens=max_tokens)
    )


def test_what_fits_is_counted():
    assert _memory(policy(512, 1000)) == {"longest_rollout": 250, "kv_tokens": 1000, "longest_at_once": 4}


def test_a_context_that_is_too_short_names_the_field_and_what_is_needed():
    with pytest.raises(UsageError, match="policy.vllm.context: 249 tokens; .* need 250") as raised:
        _memory(policy(249, 1000))
    assert "longer context" in raised.value.hint


def test_a_cache_that_is_too_small_says_how_large_it_must_be():
    with pytest.raises(UsageError, match="policy.vllm.kv_cache_gb: holds 100 tokens; .* need 250") as raised:
        _memory(policy(512, 100))
    assert raised.value.hint.startswith("At least 0.13 GB"), "0.05 x 250 / 100 = 0.125, rounded up"
