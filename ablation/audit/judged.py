"""Labels by this audit's own path, beside those of the engine and those that the run folder keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation.audit.findings import Findings
from ablation.audit.intervals import NOT_COMPUTED, Settings
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
    sections: dict[str, str] = field(default_factory=dict)


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
        ratio = own.estimate("ratio", name) if name in told else None
        if ratio is not None:
            mine = ratio.as_json()
            if ratio.reason == NOT_COMPUTED:
                mine = {"value": mine["value"]}
            found.same(where, f"ratios.{name}", told[name], mine, source=source)
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
        found.count("rules, each with its number")


def as_number(value: Any) -> int | float | None:
    if value is None:
        return None
    return value.numerator if value.denominator == 1 else float(value)


def bare(label: Any) -> str:
    """The label without deviations and marks."""
    return re.sub(r" \((?:deviations? \d|imported)[^()]*\)$", "", str(label))


def compare_verdict(where: str, told: Mapping[str, Any], own: OwnVerdict, tree: LockedTree, found: Findings, source: str) -> None:
    """A whole verdict as JSON against this audit's own."""
    found.same(where, "plan.digest", told["plan"]["digest"], tree.digest, source="the lock has")
    found.same(where, "bare_label", told["bare_label"], own.headline.label, source=source)
    found.same(where, "stable_arm", told["stable_arm"], own.headline.stable_arm, source=source)
    found.same(where, "reasons", [one["code"] for one in told["reasons"]], own.headline.codes, source=source)
    compare_arms(where, told, own, found, source)
    by_name = {f"{one['family']}/{one['arm']}" for one in told["arms"]}
    for one in own.arms:
        if one.name not in by_name:
            found.differ(where, f"{one.name} has a result and no place in it")
    for name, label in own.sections.items():
        found.same(where, f"labels.{name}", bare(told["labels"].get(name)), label, source=source)
    found.count("labels", 1 + len(own.arms) + len(own.sections))


def compare_arms(where: str, told: Mapping[str, Any], own: OwnVerdict, found: Findings, source: str) -> None:
    known = {one.name: one for one in own.arms}
    for one in told["arms"]:
        name = f"{one['family']}/{one['arm']}"
        if name in known:
            compare_arm(f"{where}, {name}", one, known[name], found, source)
        else:
            found.differ(where, f"has {name}, which has no result here")


def compare_stored(
    path: Path, own: OwnVerdict, tree: LockedTree, lines: Any, fresh: Mapping[str, Any] | None, found: Findings
) -> None:
    """`verdict.json` of the run folder, if there is one. One that is older than the journal tells of what was there then."""
    from ablation.audit.chained import check_kept

    if not path.is_file():
        found.note(f"{path.name} is not there: `ablation verdict` writes it")
        return
    told = json.loads(path.read_bytes())
    kept = told["journal"]
    if kept is not None:
        check_kept(lines, kept["length"], kept["head"], path.name, found)
    source = "this audit finds"
    if kept is not None and kept["length"] < len(lines.digests):
        found.note(
            f"{path.name} was written when the journal had {kept['length']} of its {len(lines.digests)} lines: only its arms are "
            "compared"
        )
        known = {one.name for one in own.arms}
        part = {"arms": [one for one in told["arms"] if f"{one['family']}/{one['arm']}" in known]}
        compare_arms(path.name, part, own, found, source)
        return
    compare_verdict(path.name, told, own, tree, found, source)
    if fresh is not None:
        for name in ("label", "labels", "deviations", "audits", "steps", "sweeps", "external", "imported"):
            if name in told:  # an earlier version of this program did not write all of them
                found.same(path.name, name, told[name], fresh.get(name), source="the engine says now")
