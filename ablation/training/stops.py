"""Stop rules: looked at after every update, before the next one begins."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ablation.plan.rules import StopRule
from ablation.rollouts.outcomes import Outcomes
from ablation.verdict.exact import exact

OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def rollout_metrics(own: Outcomes) -> dict[str, float | None]:
    """What stop rules look at of an update's rollouts alone: mean logprob (nats) and share of truncated or looping ones."""
    logprobs = own.logprob[np.isfinite(own.logprob)]
    return {
        "logprob": float(logprobs.mean()) if len(logprobs) else None,
        "truncated_or_looping_share": float(own.truncated_or_looping.mean()),
    }


def fired_rule(rules: list[StopRule], metrics: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first rule that holds for the last of `metrics` (one dict an update), as a record; None if none does.

    A metric that is missing or not finite fires no comparison: `nonfinite` counts those, so a plan that wants to stop
    there says so in a rule of its own.
    """
    update = len(metrics)
    for rule in rules:
        value = metrics[-1].get(rule.measure)
        first = metrics[0].get(rule.measure)
        if value is None or not math.isfinite(value):
            continue
        if rule.compare == "change":
            if first is None or not math.isfinite(first):
                continue
            value = float(exact(value) - exact(first))
        if OPERATORS[rule.op](exact(value), exact(rule.limit)):
            against = " against update 1" if rule.compare == "change" else ""
            return {
                "rule": rule.name,
                "update": update,
                "measure": rule.measure,
                "compare": rule.compare,
                "value": value,
                "op": rule.op,
                "limit": rule.limit,
                "reason": f"{rule.measure}{against} is {value:.4g}, and the plan stops a run at {rule.op} {rule.limit:g}",
            }
    return None
