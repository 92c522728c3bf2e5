"""The audit of an update's weights, computed again from its rollouts by own code, one rollout at a time.

A weight is the same at every counted token of a rollout, so shares and sums need the number of such tokens only. What depends on
the trainer's logprobs (a KL term after update 1, a clip that cut something) cannot be computed without the model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ablation.audit.counts import Outcome
from ablation.audit.stages import Rows

HIGH_ENTROPY = 0.2
"""Share of the update's tokens that the weighting `high_entropy` counts."""


class Sizes(NamedTuple):
    """What a weighting divides by, of one rollout. Rollouts and tokens are those in the loss."""

    length: int
    group: int
    group_tokens: int
    rollouts: int
    tokens: int
    groups: int
    cap: int


UNITS: dict[str, Callable[[Sizes], tuple[float, int]]] = {
    "rollout": lambda of: (1, of.length),
    "grpo": lambda of: (1, of.length),
    "token": lambda of: (of.group, of.group_tokens),
    "dapo": lambda of: (of.rollouts, of.tokens),
    "high_entropy": lambda of: (of.rollouts, of.tokens),
    "dr_grpo": lambda of: (1, of.cap),
    "prompt_mean": lambda of: (of.rollouts / max(1, of.groups), of.group_tokens),
}
"""Weighting -> a token's weight as (numerator, denominator) of advantage times s0. There is no second path to another one."""


@dataclass(frozen=True)
class Piece:
    """`tokens` tokens of rollout `row` with one weight."""

    row: int
    weight: float
    tokens: int
    anchored: bool
    """A KL anchor holds them."""
    end: int
    """Place after the last of them, in the rollout."""


@dataclass(frozen=True)
class Passes:
    """Tokens that an update goes through."""

    scored: int
    """In forward passes alone: under the trainer for a clip or a KL term, under the start for a KL term."""
    trained: int
    """Of each rollout with a weight the prompt, and the rollout up to its last weighted token."""
    exact: bool
    """What rounds to a weight of 0 under a KL term, or is cut by a clip, may end a rollout before that."""


@dataclass(frozen=True)
class Weighed:
    """What the rollouts of an update give."""

    s0: float
    learning_rate: float
    reward_mean: float
    metrics: dict[str, Any]
    weights: dict[str, Any] | None
    """None where they need the model, or there is no second path."""
    why_not: str | None
    no_signal: list[str]
    counts: dict[str, Any] | None = None
    """Of `weights` what needs no logprob: how many tokens there are."""
    passes: Passes | None = None


def fixed_scale(training: Mapping[str, Any], main_sweep: Sequence[Outcome]) -> float:
    """s0: the plan's number, or the mean thinking length of the first family's untruncated sweep rollouts."""
    if training["s0"] != "sweep":
        return float(training["s0"])
    lengths = [one.thinking_length for one in main_sweep if not one.truncated]
    return sum(lengths) / len(lengths)


def reference_lengths(sweep: Sequence[Outcome]) -> dict[str, float]:
    """Cell -> mean thinking length of its clean rollouts."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for one in sweep:
        if one.clean:
            lengths[one.cell].append(one.thinking_length)
    return {cell: sum(own) / len(own) for cell, own in lengths.items()}


def reward(one: Outcome, reference: Mapping[str, float], settings: Mapping[str, Any], truncation_penalty: float) -> float:
    earned = 0.0 - settings["loop_penalty"] * one.looping - truncation_penalty * one.truncated
    if one.clean:
        expected = reference.get(one.cell) or 0.0
        saved = max(-1.0, min(1.0, (expected - one.thinking_length) / expected)) if expected > 0 else 0.0
        earned = 1.0 + settings["length_bonus"] * saved
    return earned


def weigh(
    arm: Mapping[str, Any],
    training: Mapping[str, Any],
    rows: Rows,
    found: Sequence[Outcome],
    *,
    reference: Mapping[str, float],
    s0: float,
    cap: int,
    stored: Mapping[str, Any],
) -> Weighed:
    """The update in `rows`, whose rollouts came to `found`. `stored` is its `audit.json`."""
    settings = dict(training["reward"]) | {name: value for name, value in (arm.get("reward") or {}).items() if value is not None}
    rewards = [reward(one, reference, settings, arm.get("truncation_penalty") or 0.0) for one in found]
    finite = [one.logprob for one in found if one.logprob is not None and math.isfinite(one.logprob)]
    metrics = {
        "logprob": math.fsum(finite) / len(finite) if finite else None,
        "truncated_or_looping_share": sum(one.truncated_or_looping for one in found) / len(found),
    }
    learning_rate = arm.get("learning_rate") or training["learning_rate"]
    common = {"s0": s0, "learning_rate": learning_rate, "reward_mean": math.fsum(rewards) / len(rewards), "metrics": metrics}
    if arm.get("external") is not None:
        return Weighed(**common, weights=None, why_not="a command outside this program trained it", no_signal=[])
    advantages, no_signal = _advantages(arm, found, rewards)
    if arm["weighting"] not in UNITS:
        why_not = f"left out: weights of `{arm['weighting']}`, no second path"
        return Weighed(**common, weights=None, why_not=why_not, no_signal=no_signal)
    if arm.get("clip") is not None and stored["weights"].get("clipped_tokens") != 0:
        return Weighed(**common, weights=None, why_not="the clip needs the trainer's logprobs", no_signal=no_signal)
    pieces = _pieces(arm, rows, found, advantages, set(no_signal), s0, cap)
    common["passes"] = _passes(arm, rows, found, pieces)
    whole = _sums(pieces, found, range(len(found)))
    for name in ("source", "effort"):
        labels = sorted({getattr(one, name) for one in found})
        whole[f"by_{name}"] = {
            label: _sums(pieces, found, [row for row, one in enumerate(found) if getattr(one, name) == label]) for label in labels
        }
    whole["kl_tokens"] = sum(piece.tokens for piece in pieces if piece.anchored)
    if arm.get("kl") is not None and rows.info["update"] > 1:
        why_not = "the KL term needs the logprobs of trainer and start"
        return Weighed(**common, weights=None, why_not=why_not, no_signal=no_signal, counts=_counts(whole))
    shares = {name: whole[name] for name in ("negative_share", "truncated_share", "kl_share")}
    return Weighed(**common | {"metrics": metrics | shares}, weights=whole, why_not=None, no_signal=no_signal)


def _passes(arm: Mapping[str, Any], rows: Rows, found: Sequence[Outcome], pieces: Sequence[Piece]) -> Passes:
    prompts, lengths = rows.columns["prompt_length"], [one.tokens for one in found]
    clip, kl = arm.get("clip") is not None, arm.get("kl") is not None
    ends: dict[int, int] = {}
    for piece in pieces:
        if piece.tokens and (piece.weight or piece.anchored):
            ends[piece.row] = max(ends.get(piece.row, 0), piece.end)
    trained = sum(prompts[row] + end for row, end in ends.items())
    return Passes((clip or kl) * (sum(prompts) + sum(lengths)) * (1 + kl), trained, not (clip or kl))


def _counts(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Its counts of tokens, in all and by source and effort."""
    names = ("weighted_tokens", "kl_tokens")
    return {
        name: {label: _counts(part) for label, part in value.items()} if isinstance(value, dict) else value
        for name, value in whole.items()
        if isinstance(value, dict) or name in names
    }


def _groups(found: Sequence[Outcome]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for row, one in enumerate(found):
        groups[one.cell].append(row)
    return groups


def _advantages(arm: Mapping[str, Any], found: Sequence[Outcome], rewards: Sequence[float]) -> tuple[list[float], list[str]]:
    """(advantage of each rollout, cells that teach nothing)."""
    advantages, no_signal = [0.0] * len(found), []
    for cell, group in _groups(found).items():
        rows = [row for row in group if arm["truncated"] != "apart" or not found[row].truncated]
        own = [rewards[row] for row in rows]
        n = len(own)
        if arm["baseline"] == "none":
            if any(own):
                for row in rows:
                    advantages[row] = rewards[row]
            else:
                no_signal.append(cell)
            continue
        if n < 2 or max(own) == min(own):
            no_signal.append(cell)
            continue
        average = math.fsum(own) / n
        factor = n / (n - 1) if arm["baseline"] == "leave_one_out" else 1.0
        spread = 1.0
        if arm["scale"] == "std":
            spread = math.sqrt(math.fsum((value - average) ** 2 for value in own) / (n - 1))
            if spread == 0.0:
                no_signal.append(cell)
                continue
        for row in rows:
            advantages[row] = (rewards[row] - average) * factor / spread
    return advantages, sorted(no_signal)


def _pieces(
    arm: Mapping[str, Any],
    rows: Rows,
    found: Sequence[Outcome],
    advantages: Sequence[float],
    no_signal: set[str],
    s0: float,
    cap: int,
) -> list[Piece]:
    kept = [arm["no_signal"] != "drop" or one.cell not in no_signal for one in found]
    in_loss = [kept[row] and not (arm["truncated"] in ("apart", "mask") and one.truncated) for row, one in enumerate(found)]
    lengths = [one.tokens if arm["tokens"] == "response" else one.weighted_length for one in found]
    groups = _groups(found)
    own = [max(0.0, a) if arm["advantages"] == "positive" else a for a in advantages]
    own = [a if counted else 0.0 for a, counted in zip(own, in_loss, strict=True)]
    counted_tokens = sum(length for length, counted in zip(lengths, in_loss, strict=True) if counted)
    living = sum(any(in_loss[row] for row in group) for group in groups.values())
    tau = _threshold(arm, rows, found, lengths, in_loss)
    pieces = []
    for row, one in enumerate(found):
        group = [other for other in groups[one.cell] if in_loss[other]]
        group_tokens = sum(lengths[other] for other in group)
        sizes = Sizes(lengths[row], len(group), group_tokens, sum(in_loss), counted_tokens, living, cap)
        numerator, denominator = UNITS[arm["weighting"]](sizes)
        weight = own[row] * s0 * numerator / denominator if denominator else 0.0
        push = (-1.0 if one.truncated else 1.0) * arm["finish_push"] * s0 / lengths[row] if lengths[row] and kept[row] else 0.0
        high, last = lengths[row], lengths[row]
        if tau is not None:
            above = np.flatnonzero(_entropy(arm, rows, one, row, lengths[row]) >= tau)
            high, last = len(above), int(above[-1]) + 1 if len(above) else 0
        start = 0 if arm["tokens"] == "response" else one.weighted_start
        anchored = arm.get("kl") is not None and (kept if arm["finish_push"] else in_loss)[row]
        pieces.append(Piece(row, weight + push, high, anchored, start + last))
        pieces.append(Piece(row, push, lengths[row] - high, anchored, start + lengths[row]))
    return pieces


def _entropy(arm: Mapping[str, Any], rows: Rows, one: Outcome, row: int, length: int) -> np.ndarray:
    start = rows.ends[row] + (0 if arm["tokens"] == "response" else one.weighted_start)
    return rows.tokens["top_entropy"][start : start + length]


def _threshold(
    arm: Mapping[str, Any], rows: Rows, found: Sequence[Outcome], lengths: Sequence[int], in_loss: Sequence[bool]
) -> float | None:
    """The entropy that the highest fifth of the counted tokens reach; None for a weighting that does not look at it."""
    if arm["weighting"] != "high_entropy":
        return None
    values = [x for row, one in enumerate(found) if in_loss[row] for x in _entropy(arm, rows, one, row, lengths[row]).tolist()]
    return sorted(values, reverse=True)[math.ceil(HIGH_ENTROPY * len(values)) - 1] if values else math.inf


def _sums(pieces: Sequence[Piece], found: Sequence[Outcome], rows: Sequence[int]) -> dict[str, Any]:
    wanted = set(rows)
    own = [piece for piece in pieces if piece.row in wanted]
    counted = {"rollouts": len(wanted), "weighted_tokens": sum(piece.tokens for piece in own if piece.weight)}
    names = ("absolute_weight", "net_weight", "net_share", "negative_share", "truncated_share", "kl_share")
    if not all(math.isfinite(piece.weight) for piece in own):
        return counted | dict.fromkeys(names)
    totals = [piece.weight * piece.tokens for piece in own]
    absolute, net = math.fsum(map(abs, totals)), math.fsum(totals)
    negative = math.fsum(-total for total in totals if total < 0)
    truncated = math.fsum(abs(total) for piece, total in zip(own, totals, strict=True) if found[piece.row].truncated)
    shares = [part / absolute if absolute else None for part in (net, negative, truncated, 0.0)]
    return counted | dict(zip(names, (absolute, net, *shares), strict=True))
