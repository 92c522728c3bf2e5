"""The page that a reviewer reads before a plan is locked: what it asks, does, promises and costs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.errors import IntegrityError
from ablation.measures.estimate import METHODS
from ablation.plan.arms import ArmAdam, ArmReward, Clip, KLAnchor
from ablation.plan.choose import lock_path
from ablation.plan.cost import update_sizes
from ablation.plan.load import LoadedPlan
from ablation.plan.locate import locate, resources_of
from ablation.plan.lock import verify_lock
from ablation.plan.model import Plan
from ablation.plan.phase2 import evaluation_sets
from ablation.plan.runs import runs_for_claims
from ablation.plan.section import Section
from ablation.plan.words import number, rule_in_words
from ablation.report.arm_words import optimizer_in_words
from ablation.report.cost_words import cost_rows, cost_summary
from ablation.report.phase2_words import (
    START,
    TITLE,
    claim_rows,
    extension_rows,
    guard_words,
    label_rows,
    phase2_rows,
    rule_groups,
    selection_rows,
)

SAME = "·"
_PARTS: dict[str, type[Section]] = {"clip": Clip, "kl": KLAnchor, "reward": ArmReward, "optimizer": ArmAdam}
"""Fields of an arm that are sections themselves."""


def plan_summary(loaded: LoadedPlan, lock_state: dict[str, Any], flops: float | None = None) -> dict[str, Any]:
    """All that the page shows, as plain data. `lock_state` has `state` and `detail`; `flops` is operations per second."""
    plan = loaded.plan
    sizes = update_sizes(len(plan.cells), plan.training.updates)
    return {
        "plan": str(loaded.path),
        "name": plan.name,
        "question": plan.question,
        "digest": loaded.digest,
        "bytes_sha256": loaded.bytes_sha256,
        "lock": lock_state,
        "control": plan.verdict.replication.control,
        "arms": arm_differences(plan),
        "library": library_sources(loaded),
        "families": {name: family.seed for name, family in plan.families.items()},
        "cells": {effort: len(ids) for effort, ids in plan.problems.cells.items()},
        "update_cells": sizes,
        "rollouts_per_cell": plan.training.rollouts_per_cell,
        "rules": rules_of(plan),
        "resources": resource_states(loaded),
        "cost": cost_summary(plan, flops),
    }


def arm_differences(plan: Plan) -> dict[str, dict[str, Any]]:
    """Arm -> the fields in which it differs from the control; the control itself with every field."""
    flat = {name: _flat(arm.model_dump(exclude={"note"})) for name, arm in plan.arms.items()}
    control = flat[plan.verdict.replication.control]
    return {
        name: fields if fields is control else {key: value for key, value in fields.items() if value != control.get(key)}
        for name, fields in flat.items()
    }


def library_sources(loaded: LoadedPlan) -> dict[str, str]:
    """Arm -> which arm of the library it was taken from and what was replaced; arms that are written out are left out."""
    sources = {}
    for name, given in loaded.document.value["arms"].items():
        if "library" in given:
            own = [key for key in given if key != "library"]
            sources[name] = f"the library's {given['library']}" + (f", with its own {', '.join(own)}" if own else "")
    return sources


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """The parts of `kl`, `clip` and so on as fields of their own; a part that is not there differs in what makes it one alone."""
    result = {key: value for key, value in fields.items() if key not in _PARTS}
    if result["external"] is not None:
        external = result["external"]
        result["external"] = f"each {external['each']}: {shlex.join(external['command'])}"
    for key, section in _PARTS.items():
        missing = {name: None if info.is_required() else info.default for name, info in section.model_fields.items()}
        if not any(info.is_required() for info in section.model_fields.values()):
            missing = dict.fromkeys(missing)
        result |= {f"{key}.{name}": value for name, value in (fields[key] or missing).items()}
    return result


def rules_of(plan: Plan) -> dict[str, list[dict[str, str]]]:
    """Each list of rules with its rules in words."""

    def words(rules: list, reference: str | None = None) -> list[dict[str, str]]:
        return [{"name": rule.name, "words": rule_in_words(rule, reference)} for rule in rules]

    result = {"stop": words(plan.stop_rules), "damage": words(plan.verdict.damage)}
    for key, rules, _ in rule_groups(plan):
        result[key] = words(rules, START)
        if key == "release":
            result[key] = [
                {**row, "words": row["words"] + guard_words(rule)} for row, rule in zip(result[key], rules, strict=True)
            ]
        if key == "held_out" and plan.verdict.held_out is not None:
            read = plan.verdict.held_out.blinded_read
            row = {"name": "blinded_read", "words": f"{read.passes} of {read.pairs} pairs pass (else unverified)"}
            result[key].append(row)
    if plan.extension is not None and plan.extension.damage is not None:
        result["extension"] = words(plan.extension.damage)
    return result


def resource_states(loaded: LoadedPlan) -> list[dict[str, Any]]:
    """Every file that the plan names: field, place, declared digest and whether it is at hand. Nothing is digested here."""
    rows = []
    for field, resource in resources_of(loaded.plan).items():
        at_hand = os.path.exists(locate(resource, loaded.path))
        state = "owed" if resource.owed is not None else "at hand" if at_hand else "not at hand"
        rows.append({"field": field, "at": resource.at, "sha256": resource.sha256, "state": state, "owed": resource.owed})
    return rows


def plan_page(loaded: LoadedPlan, summary: dict[str, Any]) -> RenderableType:
    """The page for a terminal of 80 columns or more."""
    plan = loaded.plan
    parts: list[RenderableType] = [Text(plan.name, style="bold"), Padding(Text(plan.question), (0, 0, 0, 2))]

    def section(title: str, *content: RenderableType) -> None:
        parts.append(Text(f"\n{title}", style="bold cyan"))
        parts.extend(Padding(part, (0, 0, 0, 2)) for part in content)

    section(
        "Digests",
        pairs([("plan", summary["digest"]), ("file", summary["bytes_sha256"]), ("lock", lock_words(summary["lock"]))]),
    )
    section(f"Arms, in plan order ({SAME} = as the control {summary['control']})", _arms(plan, summary["arms"]))
    sources = {name: (summary["library"].get(name), arm.note) for name, arm in plan.arms.items()}
    notes = [(name, ": ".join(filter(None, texts))) for name, texts in sources.items() if any(texts)]
    if notes:
        parts.append(Padding(pairs(notes), (0, 0, 0, 2)))
    section("Schedule", pairs(schedule_rows(plan, summary)))
    if plan.extension is not None:
        section(EXTENSION_TITLE, pairs([*extension_rows(plan), *selection_rows(plan)]))
    if phase2_rows(plan):
        section(TITLE, pairs(phase2_rows(plan)))
    for key, title in RULE_TITLES.items():
        if summary["rules"].get(key):
            section(title, pairs([(rule["name"], rule["words"]) for rule in summary["rules"][key]]))
    section("Labels: the first that applies", pairs(label_rows(plan)), Text(""), Text(_labels(plan)))
    if plan.verdict.claims:
        section("Claims, tested beside the labels", pairs(claim_rows(plan)))
    if summary.get("deviations"):
        rows = [(str(one["number"]), deviation_words(one)) for one in summary["deviations"]]
        section("Deviations: every later label carries them", pairs(rows))
    section("Files", pairs((row["field"], resource_words(row)) for row in summary["resources"]))
    section("At most, every rollout at the token cap", pairs(cost_rows(plan, summary["cost"])))
    return Group(*parts)


EXTENSION_TITLE = "Extension (phase 2): more updates, only after REPLICATED"
RULE_TITLES = {
    "stop": "Stop rules: a run ends at once if",
    "damage": "Damage rules: a run is damaged if any of these holds, else stable",
    "held_out": "Held-out (phase 2): a win if all of these hold",
    "never_used": "Never-used (phase 2): confirmed if all of these hold",
    "selection": "Selection (phase 2): a checkpoint is kept if all of these hold",
    "main": "Main set (phase 2): rules of the release's win",
    "release": "Release guards: no release unless all of these hold",
    "extension": "Checks of the extension: the run pauses if any of these holds",
}


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Two columns without a heading; the right one is folded."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for left, right in rows:
        table.add_row(Text(left), Text(right))
    return table


WIDEST_TABLE = 6
"""Columns of fields that a terminal has room for; with more of them each arm lists what it does otherwise."""


def listed_fields(fields: Iterable[tuple[str, Any]]) -> str:
    """`weighting rollout, truncated apart`."""
    return ", ".join(f"{name} {shown_value(value)}" for name, value in fields)


def _arms(plan: Plan, arms: dict[str, dict[str, Any]]) -> Table:
    control = plan.verdict.replication.control
    fields = [key for key in arms[control] if any(key in fields for name, fields in arms.items() if name != control)]
    if len(fields) > WIDEST_TABLE:
        own = {name: [(key, found[key]) for key in fields if key in found] for name, found in arms.items()}
        return pairs((name, listed_fields(found) or SAME) for name, found in own.items())
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("arm")
    for field in fields:
        table.add_column(field, overflow="fold")
    for name, differences in arms.items():
        values = {field: Text(shown_value(value), style="yellow") for field, value in differences.items()}
        cells = [values.get(field, Text(SAME)) for field in fields]
        table.add_row(Text(name), *cells)
    return table


def shown_value(value: Any) -> str:
    if value is None:
        return "-"
    return number(value) if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def schedule_rows(plan: Plan, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """What is sampled and trained, and in which order."""
    sizes = summary["update_cells"]
    span = f"{sizes[-1]} or {sizes[0]}" if sizes[-1] != sizes[0] else str(sizes[0])
    efforts = ", ".join(f"{count} {effort}" for effort, count in summary["cells"].items())
    control, family = plan.verdict.replication.control, plan.verdict.replication.family
    return [
        (
            "cells",
            f"{len(plan.cells)}: {efforts}; {plan.training.rollouts_per_cell} rollouts each, {plan.sweep_rollouts} a sweep",
        ),
        ("updates", f"{plan.training.updates}, of {span} cells each ({len(plan.cells)} in all, none twice)"),
        ("first", f"sweep of the start, then {', '.join(plan.arms)}, in family {plan.main_family}; a readout after each"),
        ("then", f"sweep, {control} and the first stable arm in plan order, in family {family}"),
        *(("for claims", f"{', '.join(arms)} in family {family}") for family, arms in runs_for_claims(plan).items()),
        ("seeds", ", ".join(f"{name} {seed}" for name, seed in summary["families"].items())),
        *([("backends", _backends(plan))] if plan.policy.also else []),
        ("sampling", _sampling(plan)),
        ("training", _training(plan)),
        ("intervals", _intervals(plan)),
        ("clusters", _clusters(plan)),
    ]


def _backends(plan: Plan) -> str:
    first, *others = plan.policy.backends
    return f"{first}, or {' or '.join(others)} (`ablation run --policy`); each run has one of them"


def _sampling(plan: Plan) -> str:
    sampling = plan.sampling
    top_k = sampling.top_k or "all"
    return f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, top-k {top_k}, cap {sampling.max_tokens:,} tokens"


def _training(plan: Plan) -> str:
    training = plan.training
    s0 = f"s0 {shown_value(training.s0)}"
    parts = [f"learning rate {training.learning_rate!r}", optimizer_in_words(training.optimizer), s0]
    if training.autocast != "none":
        parts.append(f"autocast {training.autocast}")
    return ", ".join(parts)


def _intervals(plan: Plan) -> str:
    """How the plan makes an interval, what its shares are, and what it does with few clusters."""
    found = plan.statistics
    parts = [f"{100 * found.level:g}%, {METHODS[found.method]}"]
    if found.method != "t":
        parts[0] += f", {found.resamples:,} resamples"
    shares = {"pooled": "of all rollouts, pooled", "mean_of_clusters": "the mean over clusters of each one's share"}
    parts.append(f"shares: {shares[found.estimand]}, with a Wilson score interval")
    if found.few_clusters == "undecided":
        parts.append(f"with fewer than {found.min_clusters} clusters none: a rule on its end is undecided")
    elif found.method != "t":
        parts.append(f"with fewer than {found.min_clusters} clusters: {METHODS['t']}")
    return "; ".join(parts)


def _clusters(plan: Plan) -> str:
    """What the intervals are over, in each place where the plan measures."""
    sets = evaluation_sets(plan)
    over = [name for name in sets if name not in ("agent", "safety")]
    parts = ["cells (a problem at one effort)"]
    parts += [f"on {', '.join(over)}: problems"] if over else []
    parts += ["for agent turns: tasks"] if "agent" in sets else []
    return "; ".join(parts)


def _labels(plan: Plan) -> str:
    replication = plan.verdict.replication
    lines = [
        f"A control that is not damaged is `{replication.control}` without damage in one of {plan.main_family} and "
        f"{replication.family}; the stable arm is the first one in plan order. Stable arms are not ranked."
    ]
    if plan.verdict.held_out is not None or plan.verdict.release is not None:
        lines.append("Phase 2 needs REPLICATED, never-used problems WIN_VERIFIED, a release the selected checkpoint.")
    return "\n".join(lines)


def deviation_words(one: dict[str, Any]) -> str:
    """One deviation as JSON, in a sentence."""
    return f"{one['reason']} ({one['time']}, {one['by']}; {one['seen']} seen; {opens_words(one)})"


def opens_words(one: dict[str, Any]) -> str:
    """Which gates a deviation as JSON opens."""
    return f"opens {', '.join(one['opens'])}" if one["opens"] else "opens nothing"


def resource_words(row: dict[str, Any]) -> str:
    digest = f"sha256 {row['sha256'][:16]}..." if row["sha256"] else "no digest in the plan"
    return f"{row['at']}\n{row['state']}" + (f": {row['owed']}" if row["owed"] else f", {digest}")


def lock_words(lock: dict[str, Any]) -> str:
    return lock["state"] + (f": {lock['detail']}" if lock.get("detail") else "")


def state_of_lock(path: Path) -> dict[str, Any]:
    """`state`: `not locked`, `locked` or `refused`, with a `detail`."""
    if not lock_path(path).exists():
        return {"state": "not locked", "detail": None}
    try:
        locked = verify_lock(path)
    except IntegrityError as error:
        return {"state": "refused", "detail": error.message}
    return {"state": "locked", "detail": f"{locked.lock.locked_at} by {locked.lock.locked_by}", "warnings": locked.warnings}
