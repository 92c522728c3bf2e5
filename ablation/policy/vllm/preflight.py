"""Before anything is sampled: proof that vLLM samples what is trained, as the plan says.

Each check makes the engine sample and the trainer say what should have come out. A base, an adapter, a module of an adapter or a
sampling value that is silently another one shows as logprobs or frequencies that differ; none of them shows as an error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ablation.errors import IntegrityError, UsageError
from ablation.policy.base import SampledTokens, SampleRequest
from ablation.policy.probes import weights_kept
from ablation.policy.vllm.messages import SamplingValues
from ablation.policy.vllm.policy import VllmPolicy
from ablation.policy.vllm.texts import Compared, prompt_ends

if TYPE_CHECKING:
    from ablation.policy.local import LocalPolicy

TEXTS, TOKENS = 4, 16
TARGET_TEXTS, TARGET_TOKENS = 4, 4
SHOWN = 4
"""A module of the adapter counts as sampled with if the engine is this many times nearer to the trainer than no effect is."""
SMALLEST, LARGEST = 0.04, 0.7
"""Sizes of made-up weights, doubled until they show: too small a change drowns in bfloat16, and too large a one is chaos."""
SAMPLED_TEXTS, SAMPLED_ROLLOUTS, SAMPLED_TOKENS = 4, 24, 12
AGAIN = 16
"""Rollouts that are sampled twice."""
LUCK = 1e-9
"""Probability, at most, that a right engine is refused for what it sampled."""
MOST_EXCLUDED = 0.02
"""Share of sampled tokens that the trainer's own top-k and top-p would exclude: near a border, last bits decide."""
HINT = (
    "Nothing of the plan was sampled. Versions of vLLM differ in what they take: try another one, or `policy.vllm.eager: true`. "
    "Until vLLM does what the trainer computes, only `policy: {backend: local}` can run the plan."
)


def preflight(policy: VllmPolicy) -> dict[str, Any]:
    """Numbers of every check, for the journal. Raises `UsageError` or `IntegrityError` at the first that fails.

    Leaves trainer and engine with the trainer's adapter as it was.
    """
    memory = _memory(policy)
    with weights_kept(policy.trainer):
        base = _base(policy)
        targets = {target: _target(policy, target) for target in policy.plan.model.lora.targets}
    adapter = policy.hand_over()
    own = policy.compare(adapter, TEXTS, TOKENS)
    _bounded(policy, own, "under the start adapter")
    return {
        "bound": policy.bound,
        "mismatch": own.mismatch,
        "mismatch_largest": float(np.abs(own.sampler - own.trainer).max()),
        **base,
        "targets": targets,
        **_frequencies(policy),
        **memory,
    }


def _memory(policy: VllmPolicy) -> dict[str, Any]:
    """Whether the longest rollout of the plan fits, and how many of that length fit at one time."""
    longest = max(len(prompt) for prompt in policy.prompts) + policy.values.max_tokens
    tokens, context = policy.engine.facts["kv_tokens"], policy.engine.facts["context"]
    if longest > context:
        raise UsageError(
            f"policy.vllm.context: {context} tokens; the longest prompt and `sampling.max_tokens` need {longest}",
            hint="Plan a longer context, if the model was made for it, or a lower cap. Nothing was sampled.",
        )
    if longest > tokens:
        raise UsageError(
            f"policy.vllm.kv_cache_gb: holds {tokens} tokens; the longest prompt and `sampling.max_tokens` need {longest}",
            hint=f"At least {_more(policy, longest / tokens)} GB hold one such rollout. Nothing was sampled.",
        )
    return {"longest_rollout": longest, "kv_tokens": tokens, "longest_at_once": tokens // longest}


def _more(policy: VllmPolicy, factor: float) -> str:
    """The plan's KV cache times `factor`, rounded up to two digits."""
    vllm = policy.plan.policy.vllm
    assert vllm is not None
    need = vllm.kv_cache_gb * factor
    step = 10 ** (math.floor(math.log10(need)) - 1)
    return f"{math.ceil(need / step) * step:g}"


def _base(policy: VllmPolicy) -> dict[str, float]:
    """Without an adapter the engine is the trainer's base; with one that is all zeros it is the same."""
    trainer = policy.trainer
    trainer.zero_weights()
    # In this order: vLLM's CPU build adds what is left of another adapter on lm_head, as on a server, to a request without one.
    zeros = policy.compare(policy.load_into_engine(trainer.adapter_sha256()), TEXTS, TOKENS)
    without = policy.compare(None, TEXTS, TOKENS)
    _bounded(policy, without, "without an adapter, against the trainer's base,")
    _bounded(policy, zeros, "under an adapter that is all zeros")
    same = [np.array_equal(one.token_ids, other.token_ids) for one, other in zip(without.rows, zeros.rows, strict=True)]
    changed = float(np.abs(without.sampler - zeros.sampler).mean()) if all(same) else float("inf")
    if not changed <= policy.bound:
        raise IntegrityError("preflight: an adapter that is all zeros changes what vLLM samples", hint=HINT)
    return {"mismatch_base": without.mismatch, "zero_adapter_changes": changed}


def _target(policy: VllmPolicy, target: str) -> dict[str, float]:
    """An adapter of which one kind of module alone is not zero: what it changes for the trainer, and the engine's mismatch."""
    trainer, size = policy.trainer, SMALLEST
    while True:
        trainer.made_up_weights(target, size)
        compared = policy.compare(policy.load_into_engine(trainer.adapter_sha256()), TARGET_TEXTS, TARGET_TOKENS, unsure=True)
        trainer.zero_weights()
        without = np.concatenate(trainer.score(list(compared.rows)))
        moved = float(np.abs(compared.trainer - without).mean())
        if moved >= 2 * SHOWN * policy.bound and compared.mismatch <= moved / SHOWN:
            return {"size": size, "changes": moved, "mismatch": compared.mismatch}
        if size >= LARGEST:
            break
        size *= 2
    raise IntegrityError(
        f"preflight: an adapter on `{target}` alone changes the trainer's logprobs by {moved:.2g} nats in the mean, and "
        f"vLLM's are {compared.mismatch:.2g} nats from that: vLLM ignores `{target}`, or uses it otherwise",
        hint=HINT,
    )


def _bounded(policy: VllmPolicy, compared: Compared, when: str) -> None:
    if compared.mismatch <= policy.bound:
        return
    why = "it is another model, another adapter, or not what the trainer computes"
    if compared.processed:
        why = "they are logprobs after temperature, top-k and top-p, and raw ones are needed (`logprobs_mode: raw_logprobs`)"
    raise IntegrityError(
        f"preflight: {when} vLLM's logprobs are {compared.mismatch:.2g} nats from the trainer's in the mean over "
        f"{len(compared.sampler)} tokens; the bound is {policy.bound:g}: {why}",
        hint=HINT,
    )


def _frequencies(policy: VllmPolicy) -> dict[str, float]:
    """Whether tokens are sampled as the plan's values make the trainer expect, and the share of equal rollouts.

    Half of the prompts repeat their end, so that a penalty on repetition would show.
    """
    ends = prompt_ends(policy.prompts, SAMPLED_TEXTS)
    ends = [end if place % 2 else (*end[-16:],) * 3 for place, end in enumerate(ends)]
    requests = [SampleRequest(end, 1000 * place + seed) for place, end in enumerate(ends) for seed in range(SAMPLED_ROLLOUTS)]
    plan = policy.plan.sampling
    values = SamplingValues(plan.temperature, plan.top_p, plan.top_k, SAMPLED_TOKENS, plan.top_logprobs, policy.values.end_ids)
    adapter = policy.hand_over()
    first = policy.sample_with(requests, values, adapter)
    again = policy.sample_with(requests[:AGAIN], values, adapter)  # in another batch, as after a resume
    evidence = dict.fromkeys(ALTERNATIVES, 0.0)
    tokens = excluded = 0
    for request, one in zip(requests, first, strict=True):
        told, outside = _log_ratios(policy.trainer, request, one, values)
        evidence = {name: total + told[name] for name, total in evidence.items()}
        tokens, excluded = tokens + len(one.token_ids), excluded + outside
    words = f"{tokens} tokens that vLLM sampled"
    if excluded > MOST_EXCLUDED * tokens:
        raise IntegrityError(f"preflight: of {words}, {excluded} are excluded by the plan's top_k and top_p", hint=HINT)
    name = max(evidence, key=lambda one: evidence[one])
    if evidence[name] > math.log(len(ALTERNATIVES) / LUCK):
        raise IntegrityError(
            f"preflight: {words} are 10^{evidence[name] / math.log(10):.0f} times likelier {name} than under the plan's sampling "
            "values: vLLM samples with other ones (from the model's folder?)",
            hint="Remove generation_config.json from the model's folder, or look at how the server was started. " + HINT,
        )
    same = [np.array_equal(one.token_ids, other.token_ids) for one, other in zip(first[:AGAIN], again, strict=True)]
    return {
        "sampled_tokens": tokens,
        "sampled_evidence": evidence[name] / math.log(10),
        "same_seed_identical": float(np.mean(same)),
    }


ALTERNATIVES = {
    "with top_k 1": (0.02, 1.0),
    "at temperature 0.5": (0.5, 1.0),
    "at temperature 0.8": (0.8, 1.0),
    "at temperature 1.25": (1.25, 1.0),
    "at temperature 2": (2.0, 1.0),
    "with repetition penalty 1.1": (1.0, 1.1),
    "with repetition penalty 1.5": (1.0, 1.5),
}
"""(factor on the plan's temperature, repetition penalty). The likelihood ratio of one of them to the plan's values is a
martingale under those, so by luck it exceeds 1 / p with probability p at most (Ville's inequality), whatever the tokens are."""


@torch.no_grad()
def _log_ratios(
    trainer: LocalPolicy, request: SampleRequest, one: SampledTokens, values: SamplingValues
) -> tuple[dict[str, float], int]:
    """Log-likelihood ratio of the rollout under each alternative, and how many of its tokens the plan's values exclude."""
    ids, start = [*request.prompt_ids, *one.token_ids.tolist()], len(request.prompt_ids)
    raw_TV = torch.from_numpy(trainer.logits(ids, start))
    tokens_T1 = torch.tensor(ids[start:]).unsqueeze(1)
    seen_TV = torch.zeros_like(raw_TV, dtype=torch.bool)
    for place in range(len(seen_TV)):
        seen_TV[place, ids[: start + place]] = True
    plan_TV = raw_TV / values.temperature
    left_out_TV = _left_out(plan_TV, values)
    plan_T = plan_TV.masked_fill(left_out_TV, -torch.inf).log_softmax(-1).gather(1, tokens_T1).squeeze(1)
    inside_T = plan_T.isfinite()
    ratios = {}
    for name, (temperature, penalty) in ALTERNATIVES.items():
        penalized_TV = torch.where(raw_TV > 0, raw_TV / penalty, raw_TV * penalty)
        other_TV = torch.where(seen_TV, penalized_TV, raw_TV) / (values.temperature * temperature)
        other_T = other_TV.masked_fill(left_out_TV, -torch.inf).log_softmax(-1).gather(1, tokens_T1).squeeze(1)
        ratios[name] = float((other_T - plan_T)[inside_T].sum())
    return ratios, int((~inside_T).sum())


def _left_out(logits_TV: torch.Tensor, values: SamplingValues) -> torch.Tensor:
    """What top-k, and then top-p of what it left, exclude."""
    left_out_TV = torch.zeros_like(logits_TV, dtype=torch.bool)
    if values.top_k:
        least_T1 = logits_TV.topk(min(values.top_k, logits_TV.shape[1]), dim=-1).values[:, -1:]
        left_out_TV = logits_TV < least_T1
    if values.top_p < 1:
        share_TV, order_TV = logits_TV.masked_fill(left_out_TV, -torch.inf).softmax(-1).sort(dim=-1, descending=True)
        before_TV = share_TV.cumsum(-1) - share_TV
        left_out_TV = left_out_TV | torch.zeros_like(left_out_TV).scatter(1, order_TV, before_TV >= values.top_p)
    return left_out_TV
