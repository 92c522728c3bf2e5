"""Labels by this audit's own path, beside those of the engine and those that the run folder keeps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablation.audit.findings import Findings
from ablation.audit.intervals import Settings
from ablation.audit.locked import LockedTree
from ablation.audit.rules import STOPPED, Compared, Headline, Ruled, apply, damage, replication

RATIOS = ("tokens_per_correct", "clean_length", "jointly_correct_length", "cjk_share")


@dataclass(frozen=True)
class OwnArm:
    """One arm of one family by this audit's own code."""

    family: str
    arm: str
    label: str
    rules: list[Ruled] = field(default_factory=list)
    compared: Compared | None = None
    stopped: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"{self.family}/{self.arm}"


@dataclass
class OwnVerdict:
    """Every label by this audit's own code."""

    headline: Headline
    arms: list[OwnArm]
    sections: dict[str, list[Any]] = field(default_factory=dict)
    claims: dict[str, list[tuple[str, str, float | None]]] = field(default_factory=dict)
    """Claim -> (subject, label, adjusted p) of each."""
    sweeps: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Family -> measures of its sweep."""
    unread: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stage -> its answers that could not be read, for each stage that a label rests on."""
    audits: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """`family/arm` -> share of its weights -> [lowest, highest] over the updates before its readout."""


def settings_of(tree: LockedTree) -> Settings:
    names = ("level", "resamples", "seed", "min_clusters", "method", "few_clusters", "estimand")
    return Settings(*(tree.statistics(name) for name in names))


def judge(rules: Sequence[Mapping[str, Any]], compared: Compared) -> tuple[str, list[Ruled]]:
    found = [apply(rule, compared) for rule in rules]
    return damage(found), found


def headline(tree: LockedTree, arms: Sequence[OwnArm]) -> Headline:
    statuses = {(one.family, one.arm): one.label for one in arms}
    return replication(
        statuses,
        list(tree.arms),
        tree.control,
        (tree.main_family, tree.second_family),
        tree.plan["verdict"]["replication"].get("table"),
    )


def compare_arm(where: str, told: Mapping[str, Any], own: OwnArm, found: Findings, source: str) -> None:
    """One arm of a verdict (the engine's, or the stored one) against this audit's."""
    found.same(where, "label", bare(told["label"]), own.label, source=source)
    compare_rules(where, told["rules"], own.rules, found, source)
    if own.label == STOPPED:
        found.same(where, "stopped", told["stopped"], dict(own.stopped or {}), source="stopped.json says")
    if own.compared is None:
        return
    found.same(where, "measures", told["measures"], dict(own.compared.subject), source=source)
    compare_ratios(where, told["ratios"], own.compared, found, source)


def compare_ratios(where: str, told: Mapping[str, Any], own: Compared, found: Findings, source: str) -> None:
    """Every ratio that is told, with its interval."""
    for name in RATIOS:
        if name in told:
            ratio = own.estimate("ratio", name)
            found.same(where, f"ratios.{name}", told[name], None if ratio is None else ratio.as_json(), source=source)
            found.count("ratios and their intervals")


def compare_rules(where: str, told: Sequence[Mapping[str, Any]], own: Sequence[Ruled], found: Findings, source: str) -> None:
    by_name = {rule["name"]: rule for rule in told}
    if list(by_name) != [one.name for one in own]:
        found.differ(
            where, f"has the rules {', '.join(by_name) or 'none'}; the plan has {', '.join(one.name for one in own) or 'none'}"
        )
        return
    for one in own:
        rule = by_name[one.name]
        found.same(where, f"{one.name}.value", rule["value"], as_number(one.value), source=source)
        found.same(where, f"{one.name}.holds", rule["holds"], one.holds, source=source)
        for name in ("measure", "compare", "op", "limit"):
            found.same(where, f"{one.name}.{name}", rule.get(name), one.rule[name], source="the plan has")
        if one.value is not None:
            how = "computed, exact bound" if one.by_bound else "computed"
            found.same(where, f"{one.name}.how", rule.get("how"), how, source="its value is")
        found.count("rules, each with its number")


def as_number(value: Any) -> int | float | None:
    if value is None:
        return None
    return value.numerator if value.denominator == 1 else float(value)


def bare(label: Any) -> str:
    """The label without deviations and marks."""
    return re.sub(r" \((?:deviations? \d|imported|redone|unread|one of \d)[^()]*\)$", "", str(label))
