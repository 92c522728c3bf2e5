"""How long sampling, scoring and training take: decoding by memory bandwidth and batch, all else by operations.

Every formula is stated here and in plans/hardware.md. Shapes: N rollouts, M parameters in matrix products, D hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ablation.plan.footprint import BYTES, Shape, kv_bytes, state_bytes
from ablation.plan.hardware import Assumed, Device

Step = Callable[[float, float], float]
"""(rollouts in the batch, tokens of context of each) -> seconds of one decoding step."""
GRID = 512
"""Pieces that the lengths of a stage are divided into."""
NEVER = 28.0
"""exp(-28) is 7e-13: no rollout is so many scales longer than the longest is expected to be."""
BACKWARD_ATTENTION = 2.5
"""Operations of attention in a backward pass against those forward: scores are computed again, then four products for two."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of a rollout: exponential with the given mean, cut at the cap. A mean that reaches the cap: all are of the cap.

    Rollouts of a reasoning model have a long tail, and how long a stage takes is decided by its longest.
    """

    mean: float
    cap: int

    @cached_property
    def tau(self) -> float:
        """Scale of the exponential whose mean is `mean` after the cut: mean = tau (1 - exp(-cap / tau))."""
        if self.mean >= self.cap * 0.999:
            return math.inf
        low, high = self.mean, self.mean
        while high * -math.expm1(-self.cap / high) < self.mean:
            high *= 2
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if middle * -math.expm1(-self.cap / middle) < self.mean else (low, middle)
        return high

    def alive(self, token: float) -> float:
        """Share of rollouts that are longer."""
        return 1.0 if math.isinf(self.tau) else math.exp(-token / self.tau)

    @cached_property
    def context(self) -> float:
        """Mean number of tokens behind a token, of the rollout alone: E[L^2] / (2 E[L])."""
        if math.isinf(self.tau):
            return self.cap / 2
        share = self.cap / self.tau
        return self.tau**2 * (1 - (1 + share) * math.exp(-share)) / self.mean


@dataclass(frozen=True)
class Model:
    """What is computed with."""

    parameters: int
    adapter: int
    shape: Shape
    dtype: str
    compute: str
    """The type of matrix products: `dtype`, or bfloat16 under autocast."""

    @property
    def weights(self) -> int:
        """Bytes."""
        return self.parameters * BYTES[self.dtype]

    @property
    def products(self) -> int:
        """M: the input embedding is looked up, not multiplied with, unless it is the output layer, too."""
        return self.parameters - (0 if self.shape.tied else self.shape.vocabulary * self.shape.hidden)

    def forward(self, tokens: float, length: float) -> float:
        """Operations of a forward pass: 2 (M + adapter) a token, and attention over half of a text of `length`."""
        return tokens * (2 * (self.products + self.adapter) + self._attention(length / 2))

    def train(self, tokens: float, length: float, again: bool) -> float:
        """Forward, backward to the activations (2 M) and to the adapter; `again`: layers are computed again (checkpointing)."""
        once = 2 * (self.products + self.adapter) + self._attention(length / 2)
        back = 2 * self.products + 4 * self.adapter + BACKWARD_ATTENTION * self._attention(length / 2)
        return tokens * (once * (1 + again) + back)

    def _attention(self, context: float) -> float:
        """Of one token: scores and the sum over values, 2 operations each for every query channel and token before it."""
        return 4 * self.shape.full * self.shape.heads * self.shape.head_size * context


def decoding_step(model: Model, device: Device, assumed: Assumed, parts: int, *, graphs: bool, gathered: bool = False) -> Step:
    """A step over a batch on `parts` devices: each layer is split over them, or (`gathered`, FSDP) each gathers all weights and
    computes all rollouts, in lock step with the others."""
    shape, size = model.shape, BYTES[model.dtype]
    heads = min(parts, shape.key_heads)  # keys of a head are not divided, so more devices than heads hold copies
    split = 1 if gathered else parts
    bandwidth = device.bandwidth * assumed.decode_use
    peak = device.flops[model.dtype] * (1 if not device.accelerator else assumed.prefill_use)
    fixed = assumed.step_ms / 1e3 + (0 if graphs else shape.layers * assumed.layer_ms / 1e3)
    link = device.link * assumed.link_use
    if parts > 1 and gathered:
        fixed += model.weights * (parts - 1) / parts / link

    def step(rollouts: float, context: float) -> float:
        keys = rollouts * context * kv_bytes(shape, size) / (1 if gathered else heads)
        moved = model.weights / split + keys + rollouts * 2 * state_bytes(shape) / split
        operations = rollouts * (2 * (model.products + model.adapter) + model._attention(context)) / split
        sums = 0.0
        if split > 1:
            data = 2 * rollouts * shape.hidden * size * (split - 1) / split / link
            sums = 2 * shape.layers * (assumed.reduce_us / 1e6 + data)
        return max(moved / bandwidth, operations / peak) + fixed + sums

    return step


def decode(rollouts: int, lengths: Lengths, slots: int, prompt: int, step: Step) -> float:
    """Seconds until the last of N rollouts ends, at most `slots` at a time.

    While some wait, the batch is full and its rollouts are of all ages. Then it empties: after t tokens N alive(t) are left, and
    the step goes on for as long as there is one, with probability 1 - (1 - alive(t))^N.
    """
    if rollouts <= 0:
        return 0.0
    slots = max(1, min(slots, rollouts))
    full = (rollouts - slots) * lengths.mean / slots * step(slots, prompt + lengths.context)
    last = lengths.cap if math.isinf(lengths.tau) else min(lengths.cap, lengths.tau * (math.log(slots) + NEVER))
    width, seconds = last / GRID, 0.0
    for place in range(GRID):
        token = (place + 0.5) * width
        alive = lengths.alive(token)
        some = -math.expm1(slots * math.log1p(-alive)) if alive < 1 else 1.0
        seconds += width * some * step(slots * alive / some, prompt + token)
    return full + seconds


def in_batches(rollouts: int, batch: int, lengths: Lengths, prompt: int, step: Step) -> float:
    """The same of a sampler that begins a batch when the one before has ended."""
    whole, rest = divmod(rollouts, batch)
    return whole * decode(batch, lengths, batch, prompt, step) + decode(rest, lengths, max(1, rest), prompt, step)


def passes(
    operations: float, tokens: float, model: Model, device: Device, assumed: Assumed, devices: int, batch: int, training: bool
) -> float:
    """Seconds of scoring or training on `devices` that hold the model together: operations, and the weights that FSDP gathers for
    every pass over `batch` tokens on each."""
    if not tokens:
        return 0.0
    use = 1.0 if not device.accelerator else assumed.train_use if training else assumed.prefill_use
    seconds = operations / (devices * device.flops[model.compute] * use)
    if devices > 1:
        gathers = math.ceil(tokens / (devices * batch)) * (1 + training)
        seconds += gathers * model.weights * (devices - 1) / devices / (device.link * assumed.link_use)
    return seconds
