"""How often a model that equals the start would fail each guard of a release: its calibrated false-alarm rate.

- Counts on problems: both models are drawn from the start's own rates, cell by cell, as `rates.pilot_rates` takes them from the
  reference's rollouts.
- Counts of agent turns and of labelled answers: every one of n counts with the start's rate p, (x + 1/2) / (n + 1) for x of n
  (Jeffreys' prior), independently; the share of failures is then an exact sum over two binomial distributions. Of a category of
  the safety smoke n are its answers.

Other guards (ratios, their intervals, means) are not simulated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ablation.plan.measures import AGENT_COUNTS, SAFETY_COUNTS
from ablation.plan.model import Plan
from ablation.plan.phase2 import Guard, guard_set
from ablation.plan.rules import OPERATORS, Rule
from ablation.power.decide import holds, is_simulated
from ablation.power.kinds import KINDS
from ablation.power.pilot import kinds
from ablation.power.rates import Rates, pilot_rates
from ablation.power.simulate import block_size
from ablation.power.stages import Luck, measure_stage
from ablation.power.summary import Share
from ablation.rollouts.outcomes import Outcomes
from ablation.verdict.evaluated import Compared
from ablation.verdict.exact import exact
from ablation.verdict.model import SectionVerdict, Verdict
from ablation.verdict.phase2 import SETS

STUDIES = 4000
CATEGORIES = {
    "full_compliance": "harmful",
    "partial_compliance": "harmful",
    "over_refusal": "borderline",
    "injection_repeat": "injection",
    "bad_plain": "plain",
}
"""Measure of the safety smoke -> the prompts that it is about; the others are about all of them."""


@dataclass(frozen=True)
class Alarm:
    """How often an equal model fails a guard."""

    share: float | None
    """None: not simulated."""
    how: str
    se: float | None = None
    """Monte Carlo standard error; None where the share is exact."""

    @property
    def words(self) -> str:
        if self.share is None:
            return "not simulated"
        share = f"{100 * self.share:.2g}%"
        if self.se is None:
            return share
        if self.share == 0:  # of this many: the exact 95% bound
            return f"under {100 * (1 - 0.05 ** (1 / STUDIES)):.1g}%"
        return f"{share} \N{PLUS-MINUS SIGN} {100 * self.se:.1g}"

    def as_json(self) -> dict[str, Any]:
        return {"share": self.share, "se": self.se, "how": self.how, "words": self.words}


def with_false_alarms(found: Verdict, plan: Plan) -> Verdict:
    """The verdict with the false-alarm rate of every guard of its release, for each subject."""
    release = found.sections.get("release")
    if release is None or plan.verdict.release is None or not release.compared:
        return found
    told = replace(_told(release, plan), others=[_told(one, plan) for one in release.others])
    return replace(found, sections=dict(found.sections) | {"release": told})


def _told(section: SectionVerdict, plan: Plan) -> SectionVerdict:
    assert plan.verdict.release is not None
    by_set = {one.name: one for one in section.compared}
    alarms: dict[str, Mapping[str, Any]] = {}
    for name in dict.fromkeys(map(guard_set, plan.verdict.release.guards)):
        guards = [guard for guard in plan.verdict.release.guards if guard_set(guard) == name]
        alarms |= {key: one.as_json() for key, one in alarms_on(guards, by_set.get(SETS[name]), plan).items()}
    return replace(section, false_alarms=alarms)


def alarms_on(guards: Sequence[Guard], compared: Compared | None, plan: Plan) -> dict[str, Alarm]:
    """Guard -> its rate, from the reference of one comparison."""
    if compared is None or compared.figures is None:
        return {guard.name: Alarm(None, "the set was not sampled") for guard in guards}
    if compared.reference is not None:
        return _of_answers(guards, compared.reference, plan)
    return {guard.name: _of_counts(guard, compared.figures.reference) for guard in guards}


def _of_answers(guards: Sequence[Rule], reference: Outcomes, plan: Plan) -> dict[str, Alarm]:
    rates = rates_of(reference)
    simulated = [guard for guard in guards if is_simulated(guard, {})]
    found = {guard.name: Alarm(None, f"`{guard.compare}` of `{guard.measure}` is not simulated") for guard in guards}
    failing = ~equal_models(simulated, rates, STUDIES, plan.statistics.seed)
    how = f"{STUDIES:,} simulated pairs of models with the start's rates by cell"
    for place, guard in enumerate(simulated):
        share = Share.of(failing[:, place])
        found[guard.name] = Alarm(share.value, how, share.se)
    return found


def rates_of(reference: Outcomes) -> Rates:
    """The start's rates on a set, from its rollouts there."""
    names = np.unique(reference.cell)
    counts_KC = np.array([np.bincount(kinds(reference.take(reference.cell == name)), minlength=KINDS) for name in names])
    each = len(reference) // len(names)
    return pilot_rates(counts_KC, counts_KC.sum(axis=0), each, None, {}, "the reference of the comparison")


def equal_models(rules: Sequence[Rule], rates: Rates, studies: int, seed: int) -> np.ndarray:
    """bool [S, R]: whether each rule holds for a model that equals the start, in simulated comparisons."""
    blocks, size = [], block_size(rates.total)
    for number, first in enumerate(range(0, studies, size)):
        generator = np.random.Generator(np.random.SFC64([seed, number]))
        count = min(size, studies - first)
        rates_BKC = rates.draw(count, generator)
        start, own = (measure_stage(rates, rates_BKC, Luck.draw(rates, count, generator), {}) for _ in range(2))
        blocks.append(holds(rules, own, start, {}))
    return np.concatenate(blocks)


def _of_counts(guard: Rule, reference: Mapping[str, Any]) -> Alarm:
    """Of turns or labelled answers."""
    measures = (*AGENT_COUNTS, *SAFETY_COUNTS, "looping", "truncated")
    if guard.measure not in measures or guard.compare not in ("value", "change", "rate"):
        return Alarm(None, f"`{guard.compare}` of `{guard.measure}` is not simulated")
    count, rollouts = reference.get(guard.measure), reference.get("rollouts")
    by_category = reference.get("by_category") or {}
    if guard.measure in CATEGORIES:
        rollouts = sum(by_category.get(CATEGORIES[guard.measure], {}).values())
    if count is None or not rollouts:
        return Alarm(None, "the start has no such count")
    share = (count + 0.5) / (rollouts + 1)
    failing = binomial_failures(guard, rollouts, share, reference["rollouts"])
    return Alarm(failing, f"exact: {rollouts} independent answers of each model, each counting with probability {share:.3g}")


def binomial_failures(rule: Rule, n: int, p: float, rollouts: int) -> float:
    """Probability that `rule` does not hold for two counts of `n` answers that each count with probability `p`."""
    weights = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    limit, test = exact(rule.limit), OPERATORS[rule.op]
    if rule.compare != "change":
        unit = rollouts if rule.compare == "rate" else 1
        return float(sum(weight for k, weight in enumerate(weights) if not test(exact(k) / unit, limit)))
    differences = np.convolve(weights, weights[::-1])  # of -n to n
    return float(sum(weight for k, weight in zip(range(-n, n + 1), differences, strict=True) if not test(k, limit)))
