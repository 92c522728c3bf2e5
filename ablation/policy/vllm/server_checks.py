"""Before a server samples anything: what it is, and whether it does what a request says instead of dropping parts of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from ablation.errors import UsageError
from ablation.policy.vllm.messages import SamplingValues
from ablation.policy.vllm.server_http import KEY_VARIABLE, Denied, Link, Passing
from ablation.policy.vllm.server_reply import GENERATE, Reply, generate_request

UNLOAD = "/v1/unload_lora_adapter"
TOKENS = 12
"""Of each probe; not 16, which is what a server samples that drops `max_tokens`."""
HOT = 2.0
"""The highest temperature that vLLM takes: different seeds hardly sample the same by luck."""
SEEDS = (2**62 + 101, 2**62 + 202, 2**62 + 303)
START = (
    "It is started so, with the folder of the plan's base and its dtype: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve FOLDER "
    "--dtype DTYPE --enable-scale-out --enable-lora --max-lora-rank {rank} --max-logprobs {logprobs} --generation-config vllm "
    "--no-enable-chunked-prefill --max-num-batched-tokens {tokens} (at least the model's context; vLLM's CPU build: "
    "python -m vllm.entrypoints.openai.api_server --model FOLDER --gpu-memory-utilization 0.15, and the rest)"
)
_METRICS = {"kv_block": "block_size", "kv_tokens": "kv_cache_size_tokens", "prefix_caching": "enable_prefix_caching"}


@dataclass(frozen=True)
class Needs:
    """What a plan needs of a server. `prompt`: ids of the model's tokenizer; `tokens`: of the longest rollout and its prompt;
    `vocabulary`: how many tokens the trained model has."""

    rank: int
    top_logprobs: int
    context: int | None
    tokens: int
    prompt: tuple[int, ...]
    vocabulary: int

    @property
    def hint(self) -> str:
        return START.format(rank=self.rank, logprobs=self.top_logprobs + 1, tokens=max(self.tokens, self.context or 0))


@dataclass(frozen=True)
class Served:
    """Which server it is: another one, or the same started again, differs in one of these."""

    version: str
    model: str
    context: int
    started: str | None  # seconds, as its metrics have them
    metrics: dict[str, Any]


async def look(link: Link) -> Served:
    """Ask a server what it is. Raises `Passing`, `Denied`, or `ValueError` if it is no vLLM with one model."""
    version = link.parsed(await link.get("/version"))
    found = version.get("version") if isinstance(version, dict) else None
    if not isinstance(found, str) or not re.fullmatch(r"[0-9][\w.+-]{0,60}", found):
        raise ValueError("it does not say which version of vLLM it is")
    listed = link.parsed(await link.get("/v1/models"))
    cards = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
        raise ValueError("it does not list its models")
    bases = [card for card in cards if card.get("parent") is None]
    if len({str(card.get("root")) for card in bases}) != 1:
        raise ValueError(f"it serves {len(bases)} models; one is needed")
    model, context = bases[0].get("id"), bases[0].get("max_model_len")
    if not isinstance(model, str) or not isinstance(context, int) or isinstance(context, bool):
        raise ValueError("it does not say how long a rollout of its model may be")
    metrics = await _metrics(link)
    return Served(found, model, context, metrics.pop("started", None), metrics)


async def _metrics(link: Link) -> dict[str, Any]:
    """What its metrics say of it, if it has any."""
    try:
        text = await link.get("/metrics")
    except Denied:
        return {}
    found: dict[str, Any] = {}
    started = re.search(r"^process_start_time_seconds (\S+)$", text, re.MULTILINE)
    if started:
        found["started"] = started[1]
    config = re.search(r"^vllm:cache_config_info\{(.*)\}", text, re.MULTILINE)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', config[1])) if config else {}
    for name, label in _METRICS.items():
        value = labels.get(label, "")
        if value.isdecimal() and len(value) < 19:
            found[name] = int(value)
        elif value in ("True", "False"):
            found[name] = value == "True"
    return found


async def check(link: Link, needs: Needs) -> tuple[Served, dict[str, Any]]:
    """(the server, what was found of it). Raises `UsageError` with how to start it if it cannot sample the plan."""
    served = await _answered(link, needs, look(link))
    if served.context < needs.tokens or served.context < (needs.context or 0):
        least = max(needs.tokens, needs.context or 0)
        raise UsageError(
            f"{link.root}: its model takes {served.context} tokens; the longest prompt and `sampling.max_tokens` need {least}",
            hint=f"Start it with --max-model-len {least}, or more.",
        )
    fingerprint = await _answered(link, needs, _fingerprint(link, served, needs))
    await _answered(link, needs, _loads(link))
    seeds = await _answered(link, needs, _obeys(link, served, needs))
    facts = {
        "vllm": served.version,
        "model": served.model,
        "context": needs.context or served.context,
        # vLLM does not start without room for one rollout of its whole context
        "kv_tokens": served.metrics.get("kv_tokens", served.context),
        "kv_block": served.metrics.get("kv_block"),
        "prefix_caching": served.metrics.get("prefix_caching"),
        "fingerprint": fingerprint,
        "seeds": seeds,
    }
    return served, facts


async def _answered(link: Link, needs: Needs, answer: Awaitable[Any]) -> Any:
    """What it answers, or in words that it does not."""
    try:
        return await answer
    except ValueError as error:
        raise UsageError(f"{link.root}: this is no server to sample from: {error}", hint=needs.hint) from None
    except Passing as problem:
        raise UsageError(f"{link.root}: no answer as a server gives one: {problem}", hint=needs.hint) from None
    except Denied as denied:
        if denied.status == 401:
            said = f"refuses the key in {KEY_VARIABLE}" if link.has_key else f"wants a key: put it into {KEY_VARIABLE}"
            raise UsageError(f"{link.root}: the server {said}") from None
        raise UsageError(f"{link.root}: the server refuses: {denied}", hint=needs.hint) from None


async def _fingerprint(link: Link, served: Served, needs: Needs) -> str | None:
    """vLLM's digest of version, parallelism and settings, where the server gives it."""
    body = {"model": served.model, "prompt": list(needs.prompt), "max_tokens": 1, "temperature": 0.0}
    try:
        answer = link.parsed(await link.post("/v1/completions", body))
    except Denied as denied:
        if denied.status == 401:
            raise
        return None
    found = answer.get("system_fingerprint") if isinstance(answer, dict) else None
    return found if isinstance(found, str) and re.fullmatch(r"[\w.+-]{1,100}", found) else None


async def _loads(link: Link) -> None:
    """That adapters can be loaded: the route is there. Nothing is unloaded, as there is no adapter of this name."""
    try:
        await link.post(UNLOAD, {"lora_name": "ablation-no-such-adapter"})
    except Denied as denied:
        if denied.status == 404 and "no-such-adapter" in str(denied):
            return
        if denied.status in (404, 405):
            raise ValueError("it loads no adapters while it runs (VLLM_ALLOW_RUNTIME_LORA_UPDATING and --enable-lora)") from None
        raise


async def _obeys(link: Link, served: Served, needs: Needs) -> str:
    """That the values of a request are in effect. Returns "honoured" if equal seeds gave equal rollouts, else "not honoured"."""
    plain = SamplingValues(HOT, 1.0, 0, TOKENS, needs.top_logprobs, ())
    first = await _probe(link, served, needs, SEEDS[0], plain)
    others = [_probe(link, served, needs, seed, plain) for seed in SEEDS[1:]]
    again, greedy = _probe(link, served, needs, SEEDS[0], plain), replace(plain, temperature=0.0)
    likeliest = {"top_k": replace(plain, top_k=1), "top_p": replace(plain, top_p=1e-6), "temperature": greedy}
    stop = first.token_ids[TOKENS // 3]
    stopped = _probe(link, served, needs, SEEDS[0], replace(plain, end_ids=(stop,)))
    probes = [_probe(link, served, needs, SEEDS[0], values) for values in likeliest.values()]
    again, stopped, *rest = await asyncio.gather(again, stopped, *others, *probes)
    others, probes = rest[: len(SEEDS) - 1], rest[len(SEEDS) - 1 :]
    if all(one.token_ids == first.token_ids for one in others):
        raise ValueError("different seeds sample the same: it drops `seed`, and all rollouts of a prompt would be one")
    for name, one in zip(likeliest, probes, strict=True):
        if not one.all_likeliest:
            raise ValueError(f"it drops `{name}`: a token came that is not the likeliest one")
    for one in (first, again, *others, *probes):
        if one.finish_reason != "length" or len(one.token_ids) != TOKENS:
            raise ValueError(f"it drops `max_tokens`: of {TOKENS} tokens, {len(one.token_ids)} came ({one.finish_reason})")
    if stop in stopped.token_ids[:-1] or (stopped.token_ids[-1] == stop) != (stopped.stop_id == stop):
        raise ValueError("it drops `stop_token_ids`: a rollout went on after one")
    same = again.token_ids == first.token_ids
    if same and (stopped.token_ids[-1] != stop or stopped.finish_reason != "stop"):
        raise ValueError("it drops `stop_token_ids`: a rollout did not stop at one")
    return "honoured" if same else "not honoured"


async def _probe(link: Link, served: Served, needs: Needs, seed: int, values: SamplingValues) -> Reply:
    reply = Reply(0, needs.prompt, values, needs.vocabulary)
    body = generate_request(served.model, needs.prompt, seed, values, "ablation-check")
    try:
        async with asyncio.timeout(link.patience.answer), aclosing(link.events(GENERATE, body)) as events:
            async for event in events:
                reply.take(event)
    except TimeoutError:
        raise Passing(f"{TOKENS} tokens did not come within {link.patience.answer:g} s") from None
    except Denied as denied:
        if denied.status == 404:
            raise ValueError(f"it has no {GENERATE}: vLLM 0.32 or later is needed") from None
        raise
    reply.finished(0, 0)
    return reply
