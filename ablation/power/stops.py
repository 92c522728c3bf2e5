"""Stop rules on a run that changes nothing: how often chance alone would end it.

Updates are dealt other cells, so their figures differ even for a model that never moves. Shapes: B studies, K cells, U updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ablation.plan.cost import update_sizes
from ablation.plan.model import Plan
from ablation.plan.rules import OPERATORS, StopRule
from ablation.plan.words import rule_in_words
from ablation.power.kinds import MEMBERS
from ablation.power.rates import Rates
from ablation.power.simulate import block_size
from ablation.power.summary import Share

SIMULATED = ("logprob", "truncated_or_looping_share")


@dataclass(frozen=True)
class StopShare:
    rule: StopRule
    words: str
    share: Share | None
    """Share of runs that this rule would end; None: its measure is not simulated."""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.rule.name, "words": self.words, "share": None if self.share is None else self.share.as_json()}


def stop_shares(plan: Plan, rates: Rates, studies: int, seed: int) -> list[StopShare]:
    """For each stop rule of the plan the share of unchanged runs in which it holds at any update."""
    metrics = unchanged_updates(plan, rates, studies, seed)
    return [
        StopShare(rule, rule_in_words(rule), Share.of(ever_holds(rule, metrics)) if can_tell(rule, rates) else None)
        for rule in plan.stop_rules
    ]


def can_tell(rule: StopRule, rates: Rates) -> bool:
    """Whether simulated updates have what the rule looks at."""
    if rule.measure not in SIMULATED:
        return False
    return rule.measure != "logprob" or rule.compare == "change" or rates.means["logprob"].level is not None


def ever_holds(rule: StopRule, metrics: dict[str, np.ndarray]) -> np.ndarray:
    """bool [B]. As `training.stops.fired_rule`, looked at after every update."""
    values_BU = metrics[rule.measure]
    if rule.compare == "change":
        values_BU = values_BU - values_BU[:, :1]
    return OPERATORS[rule.op](values_BU, rule.limit).any(axis=1)


def unchanged_updates(plan: Plan, rates: Rates, studies: int, seed: int) -> dict[str, np.ndarray]:
    """Metrics of every update of one run a study, float64 [B, U], if the model stays as the start is."""
    size = block_size(rates.total)
    blocks = [
        _block(plan, rates, min(size, studies - first), np.random.Generator(np.random.SFC64([seed, number, 1])))
        for number, first in enumerate(range(0, studies, size))
    ]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _block(plan: Plan, rates: Rates, studies: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    cells, n = len(rates.parameters_KC), rates.per_cell
    sizes = np.array(update_sizes(cells, plan.training.updates))
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    members = MEMBERS["truncated_or_looping"]
    bad_BK = rates.draw(studies, generator)[..., members].sum(axis=-1)
    found_BK = generator.binomial(n, np.minimum(generator.permuted(bad_BK, axis=1), 1.0))  # the cells, shuffled and dealt
    metrics = {"truncated_or_looping_share": np.add.reduceat(found_BK, first, axis=1) / (sizes * n)}
    if "logprob" in rates.means:
        one = rates.means["logprob"]
        cell_BK = generator.standard_normal((studies, cells)) * np.hypot(one.between, one.within / np.sqrt(n))
        metrics["logprob"] = (one.level or 0.0) + np.add.reduceat(cell_BK, first, axis=1) / sizes
    return metrics
