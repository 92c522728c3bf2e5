"""Whether the problems that a plan calls never used are: against the plan's own other problems, and against the ledger."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ablation.ledger.ledger import Conflict, ledger_path, read_ledger
from ablation.plan.locate import locate
from ablation.plan.model import Plan
from ablation.plan.phase2 import evaluation_sets
from ablation.plan.resources import Resource
from ablation.problems.digest import fingerprint
from ablation.problems.problem import Problem, load_problems


def never_used_problems(plan: Plan, plan_path: Path) -> list[str]:
    """One line for each never-used problem that was used, or is alike to one that was; files not at hand are passed over.

    Raises `UsageError` for a problem file that cannot be read, `IntegrityError` for a ledger that was edited.
    """
    section = plan.verdict.never_used
    if section is None or section.problems is None:
        return []
    fresh = _at_hand(section.problems, plan_path)
    if not fresh:
        return []
    allowed = section.near_duplicates == "allow"
    lines = []
    for what, others in _others(plan, plan_path).items():
        same = {fingerprint(one).text: one.id for one in others}
        near = {fingerprint(one).near: one.id for one in others}
        for problem in fresh:
            own = fingerprint(problem)
            if own.text in same:
                lines.append(f"`{problem.id}` is `{same[own.text]}` of {what}")
            elif own.near in near and not allowed:
                lines.append(f"`{problem.id}` is the same but for its numbers as `{near[own.near]}` of {what}")
    conflicts = read_ledger(ledger_path(plan_path)).conflicts(fresh)
    return lines + [one.in_words() for one in conflicts if not (one.near and allowed)]


def used_before(
    plan: Plan, plan_path: Path, digest: str, set_name: str, subject: str, problems: Iterable[Problem]
) -> list[Conflict]:
    """Marks that the ledger has of the problems of an evaluation set, those of this very comparison left out.

    A set that is meant for several models is not used by them: of all but the never-used set other comparisons are left out, too.
    Alike problems count for the never-used set alone, unless the plan allows them. `digest`: the plan's.
    """
    ledger = read_ledger(ledger_path(plan_path))
    own = f"evaluations/{set_name}/" + (f"{subject}/" if set_name == "never-used" else "")
    others = [mark for mark in ledger.marks if mark.plan != digest or not mark.stage.startswith(own)]
    section = plan.verdict.never_used
    alike = set_name == "never-used" and section is not None and section.near_duplicates == "refuse"
    return [one for one in replace(ledger, marks=others).conflicts(problems) if alike or not one.near]


def _others(plan: Plan, plan_path: Path) -> dict[str, list[Problem]]:
    """What the plan itself uses: the problems in its cells, and those of its other sets."""
    named = {problem for problem, _ in plan.cells}
    found = {"the training problems": [one for one in _at_hand(plan.problems.training, plan_path) if one.id in named]}
    for name in ("held-out", "selection", "main"):
        if (one := evaluation_sets(plan).get(name)) is not None:
            found[f"the {name} problems"] = _at_hand(one.resource, plan_path)
    return found


def _at_hand(resource: Resource, plan_path: Path) -> list[Problem]:
    path = locate(resource, plan_path)
    return list(load_problems(path).values()) if resource.owed is None and os.path.exists(path) else []
