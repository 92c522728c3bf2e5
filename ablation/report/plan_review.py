"""What a reviewer must know of a plan, as plain data: `plan_review_terminal` and `plan_review_html` show it."""

from __future__ import annotations

import math
from typing import Any

from ablation.plan.cost import update_sizes
from ablation.plan.load import LoadedPlan
from ablation.plan.measures import COUNTS
from ablation.plan.model import Plan
from ablation.plan.proofs import PROVEN
from ablation.plan.rules import OPERATORS, Rule, StopRule
from ablation.plan.runs import FIRST_STABLE_ARM, families_of, perhaps_again, planned_runs
from ablation.plan.tables import STUDY
from ablation.plan.words import number, rule_in_words
from ablation.power.power import Power
from ablation.power.reach import Reach
from ablation.power.summary import Share
from ablation.report.arm_words import arm_formula, arm_in_words, optimizer_in_words, reward_in_words, symbols
from ablation.report.checklist import OPEN, checklist
from ablation.report.cost_words import cost_rows
from ablation.report.headline_words import claims_too_much, headline, headline_rows, leads_to
from ablation.report.phase2_words import (
    START,
    claim_rows,
    extension_rows,
    guard_words,
    label_rows,
    phase2_rows,
    rollouts_of_guard,
    rule_groups,
    selection_rows,
)
from ablation.report.plan_page import RULE_TITLES, schedule_rows, shown_value
from ablation.report.power_tables import SECTION_TITLES, in_words, share_text, summary_lines
from ablation.verdict.exact import exact
from ablation.verdict.model import NOT_REPLICATED, REPLICATED, UNIT_OF_CLAIM

NOW = "The page shows the file as it is now, which is not what was locked or proven."
"""Said where a plan is refused."""
UNICODE_MINUS = "\N{MINUS SIGN}"
STAGES_DRAWN = 12
"""Updates that are drawn one by one; with more of them a run's updates are one box."""


def review(loaded: LoadedPlan, summary: dict[str, Any], luck: Power, proved: dict[str, Any]) -> dict[str, Any]:
    """`summary` is of `plan_page.plan_summary`; `proved` has `proofs`, `deviations`, `journal` and `refused` (text or None)."""
    plan = loaded.plan
    rules = rules_with_numbers(plan, luck.reach)
    items = checklist(plan)
    return summary | {
        "rules": rules,
        "verdict": verdict_words(plan, rules),
        "arms": arms_side_by_side(plan, summary["arms"], summary["library"]),
        "schedule": {
            "families": drawn(plan),
            "facts": schedule_rows(plan, summary),
            "extension": [*extension_rows(plan), *selection_rows(plan)],
            "phase2": phase2_rows(plan),
        },
        "cost": summary["cost"] | {"facts": cost_rows(plan, summary["cost"])},
        "proofs": proved["proofs"],
        "journal": proved["journal"],
        "deviations": proved["deviations"],
        "refused": proved["refused"],
        "luck": luck_words(loaded, luck),
        "not_proven": not_proven(summary, proved),
        "checklist": [item.as_json() for item in items],
        "left_open": sum(item.state == OPEN for item in items),
    }


def rules_with_numbers(plan: Plan, reached: list[Reach]) -> list[dict[str, Any]]:
    """Each list of rules: title, and of each rule its words, what share of rollouts its number is, and where it turns."""
    verdict, turns = plan.verdict, {(one.group, one.name): one for one in reached}
    groups: list[tuple[str, list, str | None, int | None]] = [
        ("damage", verdict.damage, None, plan.sweep_rollouts),
        ("stop_rules", plan.stop_rules, None, None),
    ]
    groups += [(key, rules, START, rollouts) for key, rules, rollouts in rule_groups(plan)]
    if plan.extension is not None and plan.extension.damage is not None:
        groups.append(("extension", plan.extension.damage, None, plan.sweep_rollouts))
    result = []
    for key, rules, reference, rollouts in groups:
        rows = [
            {
                "name": rule.name,
                "words": rule_in_words(rule, reference) + (guard_words(rule) if key == "release" else ""),
                "share": share_of_rollouts(rule, plan, rollouts_of_guard(plan, rule) if key == "release" else rollouts),
                "turns": turning_point(rule, turns[key, rule.name]),
            }
            for rule in rules
        ]
        if key == "held_out":
            read = verdict.held_out.blinded_read
            words = f"{read.passes} or more of {read.pairs} pairs pass the blinded read (else the win is unverified)"
            share = f"{read.passes} of {read.pairs} = {read.passes / read.pairs:.1%}"
            rows.append({"name": "blinded_read", "words": words, "share": share, "turns": ""})
        if rows:
            result.append({"key": key, "title": RULE_TITLES["stop" if key == "stop_rules" else key], "rules": rows})
    return result


def share_of_rollouts(rule: Rule | StopRule, plan: Plan, rollouts: int | None) -> str:
    """The limit in a second unit that is easier to picture: `21 of 348 = 6.0%`; nothing where there is none."""
    limit = rule.limit
    if rule.measure in COUNTS and rule.compare in ("value", "change"):
        size = abs(int(limit))
        return f"{size} of {rollouts} = {size / rollouts:.1%}" if rollouts else ""
    if rule.measure == "truncated_or_looping_share" and rule.compare == "value" and rule.op in (">", ">="):
        counts = []
        for cells in sorted(set(update_sizes(len(plan.cells), plan.training.updates)), reverse=True):
            total = cells * plan.training.rollouts_per_cell
            least = next((n for n in range(total + 1) if OPERATORS[rule.op](exact(n) / total, exact(limit))), None)
            counts += [] if least is None else [f"{least} of an update's {total}"]
        return " or ".join(counts)
    if rule.measure == "logprob" and rule.compare == "change" and limit != 0:
        return f"a token {abs(math.expm1(limit)):.0%} {'less' if limit < 0 else 'more'} probable (geometric mean)"
    if rule.compare.startswith("ratio") and limit != 1:
        return f"{float(abs(exact(limit) - 1) * 100):.3g}% {'below' if limit < 1 else 'above'} the reference"
    return ""


def turning_point(rule: Rule | StopRule, reached: Reach) -> str:
    """The two neighbouring numbers between which the rule turns; for what is no count, whether the limit itself is in."""
    whole = rule.measure in COUNTS and rule.compare in ("value", "change")
    if whole and reached.holds_at is not None and reached.fails_at is not None:
        sign = "+" if rule.compare == "change" else ""
        holds, fails = (f"{int(value):{sign}d}".replace("-", UNICODE_MINUS) for value in (reached.holds_at, reached.fails_at))
        return f"{holds} is enough, {fails} is not"
    return f"exactly the limit is {'' if '=' in rule.op else 'not '}enough"


def verdict_words(plan: Plan, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """What must happen for the headline, and each way in which it does not."""
    replication = plan.verdict.replication
    control, first, second = replication.control, plan.main_family, replication.family
    others = [name for name in plan.arms if name != control]
    size = f"{plan.sweep_rollouts} rollouts"
    stops = f"ended by a stop rule ({', '.join(rule.name for rule in plan.stop_rules)})" if plan.stop_rules else None
    or_stopped = " or ended by a stop rule" if stops else ""
    conditions = [
        f"{control} is damaged in family {first}.",
        f"At least one other arm is stable in {first}. The first one in plan order is carried on: {', '.join(others)}."
        if others
        else "Another arm is stable. The plan has no other arm, so this cannot happen.",
        f"{control} is damaged again in family {second}, which has new seeds.",
        f"The arm that was carried on is stable again in {second}.",
    ]
    reasons = [
        ("CONTROL_NOT_DAMAGED", f"{control} is not damaged in {first}, or not in {second}: there is no damage to prevent."),
        ("NO_STABLE_ARM", f"Every other arm ({', '.join(others) or 'there is none'}) is damaged{or_stopped} in {first}."),
        ("NOT_STABLE_AGAIN", f"The arm that was carried on is damaged in {second}."),
    ]
    if stops:
        text = f"{control} in either family, or the arm that was carried on in {second}, is {stops}: it has no readout to judge."
        reasons.append(("STOPPED", text))
    return {
        "label": REPLICATED,
        "conditions": conditions,
        "damaged": f"An arm is damaged if its readout ({size} after its last update) against the start's sweep ({size} on "
        "the same cells and seeds) does any one of these; otherwise it is stable:",
        "damage": next(group["rules"] for group in rules if group["key"] == "damage"),
        "no_label": [
            {"code": "INCOMPLETE", "text": "A run that the next step needs is not there, or rollouts are missing or ungraded."},
            {"code": "UNDECIDED", "text": "A rule that matters cannot be said, because what it measures is undefined."},
        ],
        "later": _later(plan),
        **_decided(plan, reasons),
        "does_not_mean": [
            f"{REPLICATED} does not rank stable arms, and does not ask the stable arm to be better than the start.",
            UNIT_OF_CLAIM,
        ],
    }


def _decided(plan: Plan, reasons: list[tuple[str, str]]) -> dict[str, Any]:
    """How the reasons become a label: by the study's table, or by the rows of the plan's own."""
    if plan.verdict.replication.table == STUDY:
        return {
            "opening": f"{REPLICATED} comes out only if all four of these happen:",
            "table_title": "",
            "table": [],
            "reasons_title": f"Otherwise the label is {NOT_REPLICATED}, for any of these reasons",
            "reasons": [{"code": code, "text": text} for code, text in reasons],
            "no_label_title": "There is no label yet, neither of the two, while",
        }
    title = f"The plan's own table gives the label, by its first row that is true. {claims_too_much(plan)}"
    return {
        "opening": f"If all four of these happen, no reason against it is found, and the label is {headline(plan)}:",
        "table_title": title.strip(),
        "table": [{"label": label, "text": text} for label, text in headline_rows(plan)],
        "reasons_title": "The reasons that can be found, several at once, and the label that each leads to",
        "reasons": [{"code": code, "text": f"{text} {leads_to(plan, code)}"} for code, text in reasons],
        "no_label_title": "There is no label yet, none of the table's, while",
    }


def _later(plan: Plan) -> list[dict[str, str]]:
    """Labels after the headline, by their tables, and the claims beside them."""
    rows = [{"label": name, "text": f"{text}."} for name, text in label_rows(plan)[1:]]
    return rows + [{"label": f"claim {name}", "text": f"{text}."} for name, text in claim_rows(plan)]


def arms_side_by_side(plan: Plan, differences: dict[str, dict[str, Any]], library: dict[str, str]) -> dict[str, Any]:
    """Fields in which any arm differs, each arm's values of them, its formula and words; and what is the same in all.

    `library` says of an arm that was taken from the library which one it was.
    """
    control = plan.verdict.replication.control
    base = differences[control]
    fields = [key for key in base if any(key in changed for name, changed in differences.items() if name != control)]
    rows = []
    for name, arm in plan.arms.items():
        own = differences[name]
        values = [
            {"field": key, "value": shown_value(own.get(key, base[key])), "differs": name != control and key in own}
            for key in fields
        ]
        words = [f"It is {library[name]}."] if name in library else []
        words += arm_in_words(arm, plan.training)
        rows.append({"name": name, "note": arm.note, "values": values, "formula": arm_formula(arm), "words": words})
    training = plan.training

    def unless(*names: str) -> str:
        own = any(field.split(".")[0] in names for field in fields)
        return " where the arm says nothing else" if own else ""

    shared = {
        "reward": reward_in_words(training.reward) + unless("reward", "truncation_penalty"),
        "s0": f"{number(training.s0)} tokens, the same for every arm"
        if training.s0 != "sweep"
        else f"mean thinking length of the untruncated rollouts in the sweep of {plan.main_family}, the same for every arm",
        "learning rate": number(training.learning_rate) + unless("learning_rate"),
        "optimizer": optimizer_in_words(training.optimizer) + unless("optimizer"),
    }
    if training.autocast != "none":
        shared["precision"] = f"training and scoring under {training.autocast} autocast"
    return {"control": control, "fields": fields, "rows": rows, "symbols": symbols(plan.arms.values()), "shared": shared}


def drawn(plan: Plan) -> list[dict[str, Any]]:
    """Families with their runs, and each run's stages in order: what, cells and rollouts."""
    n, cells, replication = plan.training.rollouts_per_cell, len(plan.cells), plan.verdict.replication
    sizes = update_sizes(cells, plan.training.updates)
    if len(sizes) <= STAGES_DRAWN:
        updates = [{"what": f"update {k}", "cells": size, "rollouts": size * n} for k, size in enumerate(sizes, 1)]
    else:
        updates = [{"what": f"updates 1 to {len(sizes)}", "cells": cells, "rollouts": cells * n}]
    whole = {"cells": cells, "rollouts": plan.sweep_rollouts}
    readout = {"what": "readout", **whole}
    trained = [*updates, readout]
    planned = planned_runs(plan)
    if perhaps_again(plan):
        planned.append((replication.family, f"the {FIRST_STABLE_ARM}"))
    result = []
    for name in families_of(planned):
        runs = [arm for family, arm in planned if family == name]
        as_a_whole = {run for run in runs if run in plan.arms and plan.arms[run].trained_as_a_whole}
        rows = [{"name": "start", "stages": [{"what": "sweep", **whole}]}]
        rows += [{"name": run, "stages": [readout] if run in as_a_whole else trained} for run in runs]
        result.append({"name": name, "seed": plan.families[name].seed, "runs": rows})
    return result


def luck_words(loaded: LoadedPlan, found: Power) -> dict[str, Any]:
    """What chance alone would do, if no arm differed from the start."""
    calm = found.no_difference
    rules = [_luck(rule.rule.name, rule.words, rule.overall) for rule in calm.rules]
    rules.append(_luck("any of them", "the run is called damaged", calm.any_damage))
    sections: list[dict[str, Any]] = []
    for name, section in calm.sections.items():
        rows = [_luck(one.rule.name, one.words, one.overall) for one in section.rules]
        sections.append({"title": SECTION_TITLES[name], "rules": [*rows, _luck("all that are simulated", "", section.all_hold)]})
    return {
        "studies": found.settings.studies,
        "sentence": in_words(calm),
        "assumed": summary_lines(loaded, found)[1],
        "labels": [_luck(name, "", share) for name, share in calm.labels.items()],
        "reasons": [_luck(text, "", share) for _, text, share in calm.reasons],
        "rules": rules,
        "stops": [_luck(one.rule.name, one.words, one.share) for one in found.stops],
        "sections": sections,
        "left_out": found.left_out,
        "more": f"ablation plan power {loaded.path} --effect {loaded.plan.verdict.replication.control}.clean=-25",
    }


def _luck(name: str, words: str, share: Share | None) -> dict[str, Any]:
    shown = "not simulated" if share is None else share_text(share)
    return {"name": name, "words": words, "shown": shown, "share": None if share is None else share.value}


def not_proven(summary: dict[str, Any], proved: dict[str, Any]) -> list[str]:
    """What a reviewer must not take from lock and proofs."""
    if summary["lock"]["state"] == "not locked":
        return ["Anything: the plan is not locked, so it can still be changed without a trace."]
    proven = {one["kind"] for one in proved["proofs"] if one["state"] == PROVEN}
    lines = []
    if "timestamp" not in proven:
        whose = "a commit's or tag's date" if proven & {"git", "tag"} else "its time"
        lines.append(f"That it was made before the training: {whose} is what somebody's machine said.")
        lines.append("That it is the first lock: whoever made it can make and sign another, unless others keep its digest.")
    if not proven & {"signature", "tag"}:
        lines.append("Who made it: the name in it is what somebody's machine said.")
    lines += [
        "That nothing was tried before: rollouts made elsewhere, under no plan, leave no trace here.",
        "That this is the only study: plans that came out badly need not be shown.",
        "That the plan is a good one: see what it leaves open.",
    ]
    if any(row["owed"] for row in summary["resources"]):
        lines.append("That the owed files will be the right ones.")
    return lines
