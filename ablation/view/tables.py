"""Audits and verdicts as pages show them: read from the run, nothing decided here."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from ablation.files import parse_json
from ablation.view.library import Study

AUDIT_COLUMNS = (
    ("reward_mean", "mean reward"),
    ("negative_share", "negative weight"),
    ("net_share", "net weight"),
    ("truncated_share", "on truncated"),
    ("kl_share", "KL"),
    ("weighted_tokens", "weighted tokens"),
    ("no_signal", "cells without signal"),
    ("clipped_tokens", "clipped tokens"),
    ("grad_norm", "gradient norm"),
    ("mismatch_mean", "sampler against trainer"),
    ("outcome", "step"),
)


@dataclass(frozen=True)
class ArmAudit:
    """The updates of one arm in one family."""

    family: str
    arm: str
    rows: list[dict[str, Any]]
    unreadable: list[str]


def audits(study: Study) -> list[ArmAudit]:
    """`audit.json` of every update that is there, by family and arm in plan order."""
    plan, run = study.locked.plan, study.run
    found = []
    for family in plan.families:
        for arm in plan.arms:
            rows, unreadable = [], []
            numbers = [path.name.removeprefix("update-") for path in run.arm(family, arm).glob("update-*") if path.is_dir()]
            for update in sorted(int(one) for one in numbers if one.isdecimal()):
                path = run.audit(family, arm, update)
                if not path.is_file():
                    continue
                try:
                    rows.append(_audit_row(update, parse_json(path.read_bytes())))
                except (OSError, ValueError, KeyError, TypeError, AttributeError):
                    unreadable.append(f"{family}/{arm}/update-{update}")
            if rows or unreadable:
                found.append(ArmAudit(family, arm, rows, unreadable))
    return found


def _audit_row(update: int, audit: dict[str, Any]) -> dict[str, Any]:
    weights, metrics, step = audit.get("weights") or {}, audit.get("metrics") or {}, audit.get("step") or {}
    row = {"update": update, "reward_mean": audit.get("reward_mean"), "outcome": step.get("outcome", "stepped")}
    row |= {name: weights.get(name) for name in ("negative_share", "net_share", "truncated_share", "kl_share")}
    row |= {name: weights.get(name) for name in ("weighted_tokens", "clipped_tokens")}
    row["no_signal"] = None if not weights else len(weights.get("no_signal_cells") or ())
    row |= {"grad_norm": metrics.get("grad_norm"), "mismatch_mean": metrics.get("mismatch_mean")}
    if not all(isinstance(one, str if name == "outcome" else int | float | None) for name, one in row.items()):
        raise TypeError("a figure is of another type")
    return row


def verdict_page(study: Study) -> dict[str, Any]:
    """The verdict, computed now from the rollouts as `ablation verdict` does, and its page as that prints it."""

    from ablation.power.judged import judge_whole
    from ablation.report.terminal import plain_console
    from ablation.report.verdict_tables import meaning, print_verdict
    from ablation.verdict.labels import merged
    from ablation.verdict.stored import check_stored

    locked = study.locked
    found = judge_whole(study.root, locked, None)
    printed = io.StringIO()
    print_verdict(found, locked.plan, plain_console(file=printed, width=80, color_system=None))
    content = found.as_json()
    return {
        "json": content,
        "meaning": meaning(found, locked.plan),
        "reasons": [{"code": one.code, "text": one.text} for one in merged(found.reasons)],
        "beside": found.beside(),
        "damage": _rule_tables(content),
        "printed": printed.getvalue(),
        "stored_differs": (check_stored(study.run.verdict, content).wrong or "").replace(str(study.root), study.name),
    }


def _rule_tables(content: dict[str, Any]) -> list[dict[str, Any]]:
    """For each family: its arms, and for each rule the result of every arm."""
    tables = []
    for family in dict.fromkeys(one["family"] for one in content["arms"]):
        arms = [one for one in content["arms"] if one["family"] == family]
        names = list(dict.fromkeys(rule["name"] for one in arms for rule in one["rules"]))
        rows = []
        for name in names:
            results = {one["arm"]: next((rule for rule in one["rules"] if rule["name"] == name), None) for one in arms}
            first = next(rule for rule in results.values() if rule is not None)
            rows.append({"name": name, "rule": first, "results": results})
        tables.append({"family": family, "arms": arms, "rows": rows})
    return tables
