"""The local policy on SmolLM2-135M with LoRA, one thread: its share of what the processor can do, scoring against a bare
forward pass, and growth.

The rollouts of the speed rows are random ids with nothing in common, so nothing that a run saves by sharing prompts is in them.
Time is CPU time of this process, the two sides of a ratio take turns, and each counts its best: a shared core only adds time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import linear

from ablation.plan.load import load_plan
from ablation.plan.locate import locate
from ablation.plan.model import Plan
from ablation.policy.base import TrainRow
from ablation.policy.loading import load_adapted
from ablation.policy.local import LocalPolicy

from .made_up import made_up_rows
from .row import Row

PLAN = Path(__file__).parents[2] / "plans" / "smollm2.yaml"
TURNS = 2
LENGTH, ROLLOUTS = 128, 16


def best(*sides: Callable[[], object]) -> list[float]:
    """The least CPU time of each side, over several turns."""
    times = [[] for _ in sides]
    for _ in range(TURNS):
        for own, side in zip(times, sides, strict=True):
            started = time.process_time()
            side()
            own.append(time.process_time() - started)
    return [min(own) for own in times]


def load(plan: Plan, **training) -> LocalPolicy:
    tree = plan.model_dump(mode="json")
    tree["model"]["dtype"] = training.pop("dtype", "bfloat16")
    tree["training"] |= training
    base, adapter = (locate(one, PLAN) for one in (plan.model.base, plan.model.start_adapter))
    return LocalPolicy(Plan.model_validate(tree), base, adapter, end_ids=(2,), pad_id=0)


def rows() -> list[Row]:
    plan = load_plan(PLAN).plan
    if not all(locate(one, PLAN).is_dir() for one in (plan.model.base, plan.model.start_adapter)):
        return [Row("the local policy on SmolLM2", f"not measured: run `ablation prepare {PLAN.name}` first", "", False)]
    policy = load(plan, autocast="bfloat16", micro_batch_tokens=LENGTH * ROLLOUTS // 2)
    return [*ceiling(policy), *scoring(plan, policy), *growth(policy)]


def update(policy: LocalPolicy, own: list[TrainRow]) -> Callable[[], object]:
    def call() -> None:
        assert policy.update(own, 1e-6).stepped

    return call


def ceiling(policy: LocalPolicy) -> Iterable[Row]:
    """Floating-point operations that an update needs (the base's products forward, and backward to the activations; the adapter's
    forward and twice backward; the head at scored tokens), a second, against the same products of the base alone."""
    own = made_up_rows(ROLLOUTS, LENGTH, policy.causal.config.vocab_size)
    tokens, scored = ROLLOUTS * LENGTH, sum(len(row.token_ids) for row in own)
    adapted = [module.base_layer.weight for module in policy.model.modules() if hasattr(module, "base_layer")]
    head = policy.causal.get_output_embeddings().weight
    base_flops = sum(2 * 2 * weight.numel() * tokens for weight in adapted) + 2 * 2 * head.numel() * scored
    adapter_flops = 3 * 2 * tokens * sum(weight.numel() for weight in policy.trainable.values())
    inputs = {weight.shape: torch.randn(tokens // 2, weight.shape[1], dtype=weight.dtype) for weight in adapted}
    hidden = torch.randn(256, head.shape[1], dtype=head.dtype)

    def products() -> None:
        """One micro-batch of the base's own products, forward and back, on activations of the size of a micro-batch."""
        for weight in adapted:
            linear(inputs[weight.shape], weight) @ weight
        for _ in range(scored // 512):
            linear(hidden, head) @ head

    spent, at_ceiling = best(update(policy, own), products)
    share = (base_flops + adapter_flops) / spent / (base_flops / 2 / at_ceiling)
    name = "update: its products a second, of the same products alone (SmolLM2, bfloat16)"
    yield Row(name, f"{share:.0%} ({tokens / spent:.0f} tokens/s)", ">= 40%", share >= 0.4)


def scoring(plan: Plan, policy: LocalPolicy) -> Iterable[Row]:
    """Logprobs of given tokens against the model as transformers and peft make it, called on the same tokens and no more."""
    base, adapter = (locate(one, PLAN) for one in (plan.model.base, plan.model.start_adapter))
    stock = load_adapted(plan, base, adapter).eval()
    own = made_up_rows(ROLLOUTS, LENGTH, policy.causal.config.vocab_size)
    ids = torch.tensor([[*row.prompt_ids, *row.token_ids.tolist()] for row in own])

    def bare() -> None:
        with torch.inference_mode():
            for part in ids.split(ROLLOUTS // 2):
                stock(input_ids=part, use_cache=False)

    exact = load(plan, micro_batch_tokens=LENGTH * ROLLOUTS // 2)
    scored, forward, autocast = best(lambda: exact.score(own), bare, lambda: policy.score(own))
    name = "scoring, tokens a second, of a bare forward pass of the stock model with its logits"
    measured = f"{forward / scored:.2f}x ({forward / autocast:.2f}x with autocast)"
    yield Row(name, measured, ">= 0.9x", forward / scored >= 0.9)


def growth(policy: LocalPolicy) -> Iterable[Row]:
    """The exponent b of time = a * size^b, by least squares on logarithms."""
    vocabulary = policy.causal.config.vocab_size
    for what, sizes, make in (
        ("rollouts", (4, 8, 16, 32), lambda size: made_up_rows(size, 64, vocabulary)),
        ("length", (64, 128, 256, 512), lambda size: made_up_rows(2, size, vocabulary)),
    ):
        seconds = best(*(update(policy, make(size)) for size in sizes))
        exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        points = ", ".join(f"{size}: {one:.1f} s" for size, one in zip(sizes, seconds, strict=True))
        yield Row(f"update against {what}: exponent of its time", f"{exponent:.2f} ({points})", "<= 1.2", exponent <= 1.2)
