"""Limits of count rules, chosen by how often a model that equals the start would meet them.

The study set its tolerances so that an equal model fails each count check in 1-2.5% of runs. A damage rule strikes when it holds,
a held-out or never-used rule when it does not; both are called `strikes` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.plan.phase2 import guard_set
from ablation.plan.rules import OPERATORS, Rule
from ablation.power.decide import is_simulated, tested
from ablation.power.effects import section_of
from ablation.power.kinds import MEMBERS
from ablation.power.simulate import Model, Studies
from ablation.power.summary import Share

AROUND = 1
"""Limits shown on either side of those inside the target."""


@dataclass(frozen=True)
class Proposal:
    """One count rule."""

    section: str
    """`damage`, `held_out`, `never_used`, `main` or `release`."""
    rule: Rule
    now: Share
    """How often it strikes at the plan's limit."""
    limit: int | None
    """The whole number whose share is nearest to the middle of the target; None if no share is inside."""
    around: list[tuple[int, Share]]
    """Limits inside the target and next to it, with their shares, from the rarest to the most frequent."""

    def as_json(self) -> dict[str, Any]:
        return {
            "section": self.section,
            "name": self.rule.name,
            "limit": self.rule.limit,
            "now": self.now.as_json(),
            "proposed": self.limit,
            "around": [{"limit": limit} | share.as_json() for limit, share in self.around],
        }


def parse_target(text: str) -> tuple[float, float]:
    """`0.01-0.025` -> (0.01, 0.025). Raises `UsageError`."""
    low, dash, high = text.strip().partition("-")
    hint = "For instance --target 0.01-0.025: an equal model meets each limit in 1% to 2.5% of runs."
    try:
        ends = float(low), float(high)
    except ValueError:
        raise UsageError(f"--target {text}: is not LOW-HIGH", hint=hint) from None
    if not dash or not 0 < ends[0] <= ends[1] < 1:
        raise UsageError(f"--target {text}: LOW and HIGH are shares between 0 and 1, the lower one first", hint=hint)
    return ends


def propose(plan: Plan, model: Model, found: Studies, target: tuple[float, float]) -> list[Proposal]:
    """A proposal for every count rule, from studies in which all models equal the start."""
    proposals = []
    for rule in plan.verdict.damage:
        if _is_count(rule):
            sweep, again = found.sweeps
            runs = [tested(rule, one, sweep) for one in found.arms] + [tested(rule, one, again) for one in found.again[:1]]
            proposals.append(_propose("damage", rule, np.stack(runs, axis=1), False, target))
    for name, (subject, start) in found.sections.items():
        section = None if name == "main" else section_of(plan, name)  # an equal model is not meant to meet what makes a win
        guards = [one for one in plan.verdict.release.guards if guard_set(one) == name] if plan.verdict.release else []
        for group, rules in ((name, section.rules if section is not None else []), ("release", guards)):
            for rule in rules:
                if _is_count(rule) and is_simulated(rule, model.sections[name].means):
                    proposals.append(_propose(group, rule, tested(rule, subject, start)[:, None], True, target))
    return proposals


def _is_count(rule: Rule) -> bool:
    return rule.measure in MEMBERS and rule.compare in ("value", "change")


def _propose(section: str, rule: Rule, values_SR: np.ndarray, when_failed: bool, target: tuple[float, float]) -> Proposal:
    """`values_SR`: what the rule tests, in every run of every study. `when_failed`: it strikes when it does not hold."""

    def share(limit: float) -> Share:
        met = OPERATORS[rule.op](values_SR, limit)
        return Share.of(~met if when_failed else met)

    limits = range(int(values_SR.min()) - 1, int(values_SR.max()) + 2)
    numbers, counts = np.unique(values_SR, return_counts=True)
    shares = np.array([counts[OPERATORS[rule.op](numbers, limit) ^ when_failed].sum() / counts.sum() for limit in limits])
    inside = np.flatnonzero((shares >= target[0]) & (shares <= target[1]))
    middle = sum(target) / 2
    best = None if not len(inside) else limits[int(inside[np.argmin(np.abs(shares[inside] - middle))])]
    rarer, commoner = np.flatnonzero(shares < target[0]), np.flatnonzero(shares > target[1])
    rarer, commoner = (side[np.argsort(np.abs(shares[side] - middle), kind="stable")][:AROUND] for side in (rarer, commoner))
    shown = sorted({*inside.tolist(), *rarer.tolist(), *commoner.tolist()}, key=lambda place: (shares[place], limits[place]))
    return Proposal(section, rule, share(rule.limit), best, [(limits[place], share(limits[place])) for place in shown])
