"""What trackers are told: names that stay, each computed from one stored number. `runs/README.md` (Trackers) lists them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ablation.plan.rules import StopRule
from ablation.verdict.exact import exact

SHARES = ("correct", "clean", "truncated", "looping", "periodic", "strong", "no_answer", "truncated_or_looping")
"""Counts of `measures.json` that are told as a share of the rollouts: `correct` as `correct_share`."""
MEANS = (
    *("rollouts", "logprob", "top20_entropy", "top20_mass", "tokens_per_correct", "clean_length"),
    *("total_tokens", "thinking_tokens", "cjk_share"),
)
"""Numbers of `measures.json` that are told as they are."""
METRICS = (
    *("entropy", "grad_norm", "nonfinite"),
    *("mismatch_mean", "mismatch_p99", "mismatch_outside", "mismatch_k3"),
)
"""Numbers of an audit's `metrics`; what it has beside them is among the measures and the weights."""
WEIGHTS = (
    *("net_share", "negative_share", "truncated_share", "kl_share"),
    *("absolute_weight", "weighted_tokens", "clipped_tokens"),
)
"""Numbers of an audit's `weights`."""

Values = dict[str, float]


def measures_values(measures: Mapping[str, Any], prefix: str) -> Values:
    """What `measures.json` of a stage tells."""
    rollouts = measures.get("rollouts") or 0
    found = {f"{name}_share": measures[name] / rollouts for name in SHARES if rollouts and measures.get(name) is not None}
    return numbers({**{name: measures.get(name) for name in MEANS}, **found}, prefix)


def audit_values(audit: Mapping[str, Any]) -> Values:
    """What `audit.json` of an update tells."""
    metrics, step, weights = (audit.get(name) or {} for name in ("metrics", "step", "weights"))
    found = {"grad_norm": step.get("grad_norm")}  # audits of earlier versions of this program have it there alone
    found |= {name: metrics[name] for name in METRICS if name in metrics}
    found |= {name: audit.get(name) for name in ("learning_rate", "reward_mean")}
    found |= {name: step.get(name) for name in ("loss", "stepped")}
    cells = weights.get("no_signal_cells")
    weighed = {name: weights.get(name) for name in WEIGHTS} | {"no_signal_cells": None if cells is None else len(cells)}
    return numbers(found, "update/") | numbers(weighed, "weights/")


def speed_values(sampled: Mapping[str, Any] | None, trained: Mapping[str, Any] | None) -> Values:
    """What the journal's `stage_sampled` and `update_trained` tell of time. A stage that was sampled in two sittings is told of
    by its last one."""
    found: dict[str, Any] = {}
    for name, event in (("sample", sampled), ("train", trained)):
        seconds, tokens = (event or {}).get("seconds"), (event or {}).get("tokens")
        found[f"{name}_seconds"] = seconds
        if seconds and tokens:
            found[f"{name}_tokens_per_second"] = tokens / seconds
    return numbers(found, "speed/")


def margin_values(rules: Sequence[StopRule], metrics: Sequence[Mapping[str, Any]]) -> Values:
    """For each stop rule how far the last of `metrics` (one an update) is from its limit, in the measure's unit: positive while
    the rule does not fire, zero at the limit, negative beyond it."""
    found: dict[str, Any] = {}
    for rule in rules:
        value, first = metrics[-1].get(rule.measure), metrics[0].get(rule.measure)
        if value is None or not math.isfinite(value):
            continue
        if rule.compare == "change":
            if first is None or not math.isfinite(first):
                continue
            value = float(exact(value) - exact(first))
        distance = float(exact(rule.limit) - exact(value))
        found[rule.name] = distance if rule.op.startswith(">") else -distance
    return numbers(found, "stop/")


def numbers(values: Mapping[str, Any], prefix: str) -> Values:
    """The finite numbers of `values`, flags as 0 and 1."""
    return {
        f"{prefix}{name}": float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and math.isfinite(value)
    }
