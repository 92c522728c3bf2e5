"""Shares of simulated studies, with their Monte Carlo standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablation.plan.model import Plan
from ablation.plan.phase2 import guard_set
from ablation.plan.rules import Rule
from ablation.plan.tables import labels_of
from ablation.plan.words import rule_in_words
from ablation.power.decide import CONTROL_FIRST, CONTROL_SECOND, NO_STABLE_ARM, NOT_STABLE_AGAIN, holds, is_simulated
from ablation.power.effects import SECTIONS, Effects, section_of
from ablation.power.simulate import Model, Studies, simulate
from ablation.verdict.model import REPLICATED


@dataclass(frozen=True)
class Share:
    """A share of simulated runs or studies."""

    value: float
    se: float
    """Monte Carlo standard error: how far the share may be off because the number of simulated studies is finite."""
    studies: int
    """Independent studies that it is taken from."""

    @staticmethod
    def of(values: np.ndarray) -> Share:
        """Of bool [S], or of runs of one study each row, bool [S, runs]: these share a sweep, so a study is what counts."""
        means = values.reshape(len(values), -1).mean(axis=1)
        value = float(means.mean()) if len(means) else float("nan")
        return Share(value, float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0, len(means))

    @property
    def below(self) -> float | None:
        """If none (or all) came out: the exact 95% upper bound of that share (or of the rest), else None."""
        return 1 - 0.05 ** (1 / self.studies) if self.studies and self.value in (0.0, 1.0) else None

    def as_json(self) -> dict[str, Any]:
        return {"share": self.value, "se": self.se, "studies": self.studies, "bound_95": self.below}


@dataclass(frozen=True)
class RuleShare:
    rule: Rule
    words: str
    simulated: bool
    overall: Share | None
    """Damage: share of all runs of the first family in which it holds; section: share of studies."""
    by_arm: dict[str, Share]
    """Damage rules in the first family, by arm."""

    def as_json(self) -> dict[str, Any]:
        content = {"name": self.rule.name, "words": self.words, "simulated": self.simulated}
        content["share"] = None if self.overall is None else self.overall.as_json()
        return content | ({"by_arm": {arm: one.as_json() for arm, one in self.by_arm.items()}} if self.by_arm else {})


@dataclass(frozen=True)
class SectionShare:
    """Rules that must hold on held-out or never-used problems."""

    rules: list[RuleShare]
    all_hold: Share | None
    """All simulated rules of the section; None if there is none."""

    def as_json(self) -> dict[str, Any]:
        found = None if self.all_hold is None else self.all_hold.as_json()
        return {"rules": [one.as_json() for one in self.rules], "all_simulated_rules_hold": found}


@dataclass(frozen=True)
class Scenario:
    """What would come out under one set of effects."""

    effects: Effects
    rules: list[RuleShare]
    any_damage: Share
    """Share of all runs of the first family in which any damage rule holds."""
    damaged: list[tuple[str, str, Share | None]]
    """(family, arm, share); the second family has the control and `the replicated arm`. None: no study got there."""
    labels: dict[str, Share]
    reasons: list[tuple[str, str, Share]]
    """(code, sentence, share of studies); a study can have several."""
    sections: dict[str, SectionShare]
    cut: float
    studies: Studies

    def as_json(self) -> dict[str, Any]:
        return {
            "effects": self.effects,
            "labels": {name: one.as_json() for name, one in self.labels.items()},
            "reasons": [{"code": code, "text": text} | one.as_json() for code, text, one in self.reasons],
            "damage_rules": [one.as_json() for one in self.rules],
            "damaged": self.any_damage.as_json(),
            "runs": [
                {"family": family, "arm": arm, "damaged": None if one is None else one.as_json()}
                for family, arm, one in self.damaged
            ],
            "sections": {name: one.as_json() for name, one in self.sections.items()},
            "effects_cut": self.cut,
        }


REPLICATED_ARM = "the replicated arm"


def run_scenario(plan: Plan, model: Model, effects: Effects, studies: int, seed: int) -> Scenario:
    """Simulate `studies` studies and count."""
    found = simulate(plan, model, effects, studies, seed)
    replication, first = plan.verdict.replication, plan.main_family
    damaged = found.fired_SAR.any(axis=2)
    ran = found.stable >= 0
    runs = [(first, arm, Share.of(damaged[:, place])) for place, arm in enumerate(plan.arms)]
    runs.append((replication.family, replication.control, Share.of(found.fired_again[0].any(axis=1))))
    again = Share.of(found.fired_again[1][ran].any(axis=1)) if ran.any() else None
    runs.append((replication.family, REPLICATED_ARM, again))
    labels = labels_of("replication", plan.verdict.replication.table)
    return Scenario(
        effects=effects,
        rules=_damage_rules(plan, model, found),
        any_damage=Share.of(damaged),
        damaged=runs,
        labels={label: Share.of(found.decision.label == label) for label in sorted(labels, key=REPLICATED.__ne__)},
        reasons=[(name.split()[0], text, Share.of(found.decision.reasons[name])) for name, text in _reasons(plan).items()],
        sections={name: _section(plan, model, found, name) for name in SECTIONS if name in found.sections}
        | _guards(plan, model, found),
        cut=found.cut,
        studies=found,
    )


def _damage_rules(plan: Plan, model: Model, found: Studies) -> list[RuleShare]:
    rules = []
    for place, rule in enumerate(plan.verdict.damage):
        simulated = is_simulated(rule, model.rates.means)
        by_arm = {arm: Share.of(found.fired_SAR[:, own, place]) for own, arm in enumerate(plan.arms)} if simulated else {}
        overall = Share.of(found.fired_SAR[:, :, place]) if simulated else None
        rules.append(RuleShare(rule, rule_in_words(rule), simulated, overall, by_arm))
    return rules


def _section(plan: Plan, model: Model, found: Studies, name: str) -> SectionShare:
    section = section_of(plan, name)
    assert section is not None
    rules: Sequence[Rule] = section.rules
    known = model.sections[name].means
    holding = holds(rules, *found.sections[name], known)
    simulated = np.array([is_simulated(rule, known) for rule in rules], dtype=bool)
    rows = [
        RuleShare(rule, rule_in_words(rule, "the start"), bool(there), Share.of(holding[:, place]) if there else None, {})
        for place, (rule, there) in enumerate(zip(rules, simulated, strict=True))
    ]
    return SectionShare(rows, Share.of(holding[:, simulated].all(axis=1)) if simulated.any() else None)


def _guards(plan: Plan, model: Model, found: Studies) -> dict[str, SectionShare]:
    """The guards of a release, each on its own set; those of agent turns and safety prompts are not simulated."""
    if plan.verdict.release is None:
        return {}
    rows, holding = [], []
    for guard in plan.verdict.release.guards:
        where = guard_set(guard)
        share = None
        if where in found.sections and is_simulated(guard, model.sections[where].means):
            holding.append(holds([guard], *found.sections[where], model.sections[where].means)[:, 0])
            share = Share.of(holding[-1])
        words = f"{rule_in_words(guard, 'the start')} (on {where.replace('_', '-')})"
        rows.append(RuleShare(guard, words, share is not None, share, {}))
    return {"release": SectionShare(rows, Share.of(np.logical_and.reduce(holding)) if holding else None)} if rows else {}


def _reasons(plan: Plan) -> dict[str, str]:
    replication, first = plan.verdict.replication, plan.main_family
    return {
        CONTROL_FIRST: f"{replication.control} is not damaged in {first}",
        CONTROL_SECOND: f"{replication.control} is not damaged in {replication.family}",
        NO_STABLE_ARM: f"no other arm is stable in {first}",
        NOT_STABLE_AGAIN: f"the first stable arm is damaged in {replication.family}",
    }
