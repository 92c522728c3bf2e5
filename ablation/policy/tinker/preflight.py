"""Before anything of the plan is sampled: what the service is, and proof that it samples and trains as the plan says.

A service drops what it does not know in silence. So each thing that the plan takes for granted is asked for and looked at:
nothing is assumed from a name or a version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ablation.errors import IntegrityError, UsageError
from ablation.plan.arms import Adam
from ablation.policy.base import SampledTokens, SampleRequest, ScoreRow, TrainRow
from ablation.policy.tinker.policy import KEPT, NORM_METRICS, TinkerPolicy
from ablation.policy.tinker.probe import (
    Throwaway,
    check_adam_fields,
    check_optimizer,
    find_reductions,
    leaves_gradients,
    plain_step,
)
from ablation.policy.tinker.sampling import SamplingSettings
from ablation.policy.tinker.service import Denied, Service, offered_words, unique_name
from ablation.policy.tinker.weights import need_same

TOKENS = 16
"""Of each rollout that is sampled to look at it."""
SEEDS = (20250101, 20250102, 20250103, 20250104)
HOT = 2.0
"""Temperature at which different seeds hardly sample the same by luck."""
NORM_TOLERANCE = 0.05
Reference = Callable[[list[ScoreRow]], list[np.ndarray]]
HINT = "Nothing of the plan was sampled."


def need_model(service: Service, name: str) -> None:
    """Raise `UsageError` with what the service offers, unless it offers the model."""
    models = service.models()
    if name not in models:
        raise UsageError(
            f"policy.tinker.base_model: the service at {service.where} does not offer `{name}`; {offered_words(models)}",
            hint="The name is the service's own for the plan's base.",
        )


def check_start(policy: TinkerPolicy) -> dict[str, Any]:
    """That the start state holds exactly the plan's start adapter, at the plan's rank and alpha. Leaves the policy there."""
    lora, path = policy.plan.model.lora, policy.start.path
    trainer = policy.live().trainer
    stored = policy.service.wait(trainer.save_weights_for_sampler(unique_name("start"), ttl_seconds=KEPT)).path
    weights, config = policy.service.download(stored)
    for name, own, planned in (("rank", config.get("r"), lora.rank), ("alpha", config.get("lora_alpha"), lora.alpha)):
        if own != planned:
            raise UsageError(
                f"model.lora.{name}: the plan says {planned:g}; the service's adapter at {path} has {own}",
                hint="A service fixes what its adapters are scaled with: plan that, with a start adapter made so.",
            )
    need_same(path, weights, policy.start.weights, "the plan's start adapter")
    return {"start_adapter": policy.adapter_sha256(), "alpha": config.get("lora_alpha"), "rank": config.get("r")}


def check_tokenizer(policy: TinkerPolicy, tokenizer: Any) -> str:
    """Whether the service's tokenizer is the plan's: "same", or "not compared" where it cannot be had here."""
    other = _tokenizer_of(policy.live().trainer)
    if other is None:
        return "not compared"
    own, theirs = tokenizer.get_vocab(), other.get_vocab()
    if own != theirs:
        differ = [token for token in sorted(own.keys() | theirs.keys()) if own.get(token) != theirs.get(token)]
        raise UsageError(
            f"policy.tinker.base_model: the service's tokenizer is not that of the plan's base: {len(differ)} tokens differ, for "
            f"instance {differ[0]!r} ({own.get(differ[0])} here, {theirs.get(differ[0])} there)",
            hint="Token ids are what goes there and back: they must mean the same.",
        )
    return "same"


def _tokenizer_of(trainer: Any) -> Any | None:
    """The tokenizer that the service names: a folder that is here, too, or one of a model hub; None if it cannot be had."""
    import logging

    from transformers import AutoTokenizer

    data = trainer.get_info().model_data
    name = data.tokenizer_id or data.model_name or ""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # that the hub is not reached is said once, by us
    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    except Exception:  # whatever library it takes raises what it likes
        if name.count("/") != 1:  # no name of a hub
            return None
    try:
        return trainer.get_tokenizer()
    except Exception:
        return None


def check_sampling(policy: TinkerPolicy, prompt: tuple[int, ...]) -> tuple[dict[str, Any], list[tuple[ScoreRow, SampledTokens]]]:
    """(what was found, rollouts to train probes on). Values of a request are in effect, and sampled is what is trained."""
    plain = replace(policy.settings, max_tokens=TOKENS, temperature=1.0, top_p=1.0, top_k=0)
    first = _sample(policy, plain, prompt, SEEDS)
    again = _sample(policy, plain, prompt, SEEDS)
    same = [np.array_equal(one.token_ids, other.token_ids) for one, other in zip(first, again, strict=True)]
    if all(np.array_equal(one.token_ids, first[0].token_ids) for one in first[1:]):
        raise UsageError("preflight: the service drops `seed`: different seeds sample the same", hint=HINT)
    rows = [ScoreRow(prompt, one.token_ids) for one in first]
    scored = policy.score(rows)
    apart = _apart(scored, first)
    if not apart <= policy.bound:
        raise IntegrityError(
            f"preflight: what the service samples has logprobs {apart:.2g} nats from those that it trains with; the bound is "
            f"{policy.bound:g}: another adapter, or logprobs that are not raw",
            hint=HINT,
        )
    found: dict[str, Any] = {"same_seed_identical": float(np.mean(same)), "mismatch": apart, "bound": policy.bound}
    found["seeds"] = "honoured" if all(same) else "not honoured"
    _check_stop(policy, plain, prompt, first, all(same))
    _check_values(policy, plain, prompt)
    return found, list(zip(rows, first, strict=True))


def _check_stop(
    policy: TinkerPolicy, plain: SamplingSettings, prompt: tuple[int, ...], first: Sequence[SampledTokens], same: bool
) -> None:
    """A token that was sampled, named as an end token, ends the rollout."""
    place = max(range(len(first)), key=lambda found: len(first[found].token_ids))
    one = first[place]
    stop = int(one.token_ids[len(one.token_ids) // 3])
    ends = (stop,) * len(plain.end_ids)
    (stopped,) = _sample(policy, replace(plain, end_ids=ends), prompt, [SEEDS[place]])
    if same and (stopped.finish_reason != "stop" or int(stopped.token_ids[-1]) != stop):
        raise UsageError("preflight: the service drops `stop`: a rollout did not end at an end token", hint=HINT)


def _check_values(policy: TinkerPolicy, plain: SamplingSettings, prompt: tuple[int, ...]) -> None:
    """Those that the plan sets: made so narrow that one token is left, two seeds must sample the same."""
    use = policy.settings
    narrow = {
        "top_k": (use.top_k > 0, replace(plain, temperature=HOT, top_k=1)),
        "top_p": (use.top_p < 1, replace(plain, temperature=HOT, top_p=1e-6)),
        "temperature": (use.temperature != 1.0, replace(plain, temperature=1e-4)),
    }
    for name, (needed, settings) in narrow.items():
        if not needed:
            continue
        one, other = _sample(policy, settings, prompt, SEEDS[:2])
        length = min(len(one.token_ids), len(other.token_ids))
        if not np.array_equal(one.token_ids[:length], other.token_ids[:length]):
            raise UsageError(f"sampling.{name}: the service drops it: seeds differ where one token alone is left", hint=HINT)


def check_training(
    policy: TinkerPolicy, sampled: Sequence[tuple[ScoreRow, SampledTokens]], adams: Sequence[Adam]
) -> dict[str, Any]:
    """That a step is the study's, by its adapter; sets what the policy has to know of the service's loss and metrics."""
    row = _probe_row(sampled)
    policy.service.leaves_gradients = leaves_gradients(policy, row)
    policy.reductions, found, descent = find_reductions(policy, row)
    found = {"reduction": policy.reductions.record(), "leaves_gradients": policy.service.leaves_gradients} | found
    short = TrainRow(
        row.prompt_ids, *(values[: len(row.token_ids) // 2] for values in (row.token_ids, row.sampler_logprobs, row.weights))
    )
    rate = policy.plan.training.learning_rate
    found |= check_optimizer(policy, short, descent, rate)
    found |= check_adam_fields(policy, short, adams)
    found |= _check_new_adapter(policy, short, [one for one, _ in sampled], found["gradient_norm"])
    return found


def _probe_row(sampled: Sequence[tuple[ScoreRow, SampledTokens]]) -> TrainRow:
    """Of the longest rollout; the weights of the first half have both signs, the second half has none."""
    row, one = max(sampled, key=lambda found: len(found[1].token_ids))
    count = len(one.token_ids)
    if count < 4:
        raise UsageError(
            f"preflight: the longest of {len(sampled)} rollouts has {count} tokens: too few to look at a step", hint=HINT
        )
    weights = np.zeros(count)
    weights[: count // 2] = np.where(np.arange(count // 2) % 3 == 1, -0.5, 1.0)
    return TrainRow(row.prompt_ids, row.token_ids, one.logprobs, weights)


def _check_new_adapter(policy: TinkerPolicy, row: TrainRow, rows: list[ScoreRow], norm: float) -> dict[str, Any]:
    """A trained adapter changes what the service samples with, and its trainer and sampler still agree. A norm of the
    gradient that it tells is the gradient's, or not taken."""
    probe = Throwaway(policy, policy.start.path, optimizer=False)
    try:
        before = probe.logprobs(rows)
        probe.step([row], plain_step(0.5 / max(norm, 1e-12)), policy.reductions)
        named = [name for name in NORM_METRICS if name in probe.metrics]
        policy.norm_metric = next((name for name in named if abs(probe.metrics[name] / norm - 1) <= NORM_TOLERANCE), None)
        moved = float(np.abs(probe.logprobs(rows) - before).mean())
        sampler = policy.service.client.create_sampling_client(model_path=probe.sampler_path)
        plain = replace(policy.settings, max_tokens=TOKENS, temperature=1.0, top_p=1.0, top_k=0)
        sampled = [_rollout(policy, sampler, plain, rows[0].prompt_ids, seed) for seed in SEEDS]
        own = [ScoreRow(rows[0].prompt_ids, one.token_ids) for one in sampled]
        trainer = probe.logprobs(own)
    finally:
        probe.close()
    told = np.concatenate([one.logprobs for one in sampled])
    start = np.concatenate(policy.score(own))
    new, old = float(np.abs(told - trainer).mean()), float(np.abs(told - start).mean())
    if not new <= policy.bound:
        raise IntegrityError(
            f"preflight: after a step the service samples with logprobs {new:.2g} nats from its trainer's ({old:.2g} from those "
            f"of the adapter before; bound {policy.bound:g}): it does not sample what was trained",
            hint=HINT,
        )
    return {"step_moves": moved, "new_adapter_mismatch": new, "old_adapter_mismatch": old, "norm_metric": policy.norm_metric}


def _sample(
    policy: TinkerPolicy, settings: SamplingSettings, prompt: tuple[int, ...], seeds: Sequence[int]
) -> list[SampledTokens]:
    found: dict[int, SampledTokens] = {}
    policy.stream([SampleRequest(prompt, seed) for seed in seeds], settings, None, found.__setitem__)
    return [found[place] for place in range(len(seeds))]


def _rollout(policy: TinkerPolicy, sampler: Any, settings: SamplingSettings, prompt: tuple[int, ...], seed: int) -> SampledTokens:
    from tinker import types

    from ablation.policy.tinker.sampling import checked_rollout

    answer = policy.service.wait(sampler.sample(types.ModelInput.from_ints(list(prompt)), 1, settings.params(seed)))
    return checked_rollout(answer, settings, policy.service.where)


def _apart(scored: Sequence[np.ndarray], sampled: Sequence[SampledTokens]) -> float:
    """Mean absolute difference (nats) over all tokens."""
    return float(np.abs(np.concatenate(scored) - np.concatenate([one.logprobs for one in sampled])).mean())


def check_reference(policy: TinkerPolicy, sampled: Sequence[tuple[ScoreRow, SampledTokens]], reference: Reference) -> float:
    """Mean absolute difference (nats) of what was sampled from the same model computed here: base, alpha, modules and tokens are
    the plan's, whatever the service says of itself."""
    apart = _apart(reference([row for row, _ in sampled]), [one for _, one in sampled])
    if not apart <= policy.bound:
        raise IntegrityError(
            f"preflight: under the start adapter the service's logprobs are {apart:.2g} nats from those of the plan's model "
            f"computed here; the bound is {policy.bound:g}: another base, or an adapter that is scaled otherwise",
            hint=HINT,
        )
    return apart


def preflight(
    policy: TinkerPolicy,
    tokenizer: Any,
    prompt: tuple[int, ...],
    adams: Sequence[Adam],
    reference: Reference | None = None,
) -> dict[str, Any]:
    """Numbers of every check, for the journal. Raises `UsageError` or `IntegrityError` at the first that fails.

    `reference`: scores rows with the plan's model, computed here; None where it cannot be.
    """
    try:
        found: dict[str, Any] = policy.attempt("looking at the start state", lambda: check_start(policy))
        found["tokenizer"] = check_tokenizer(policy, tokenizer)
        sampling, sampled = check_sampling(policy, prompt)
        found |= sampling
        found["mismatch_here"] = None if reference is None else check_reference(policy, sampled, reference)
        found |= policy.attempt("looking at what a step does", lambda: check_training(policy, sampled, adams))
    except Denied as denied:
        raise UsageError(f"preflight: the service at {policy.service.where} refuses: {denied}", hint=HINT) from None
    policy.reset()
    return found | {"tokens": policy.used.as_json()}
