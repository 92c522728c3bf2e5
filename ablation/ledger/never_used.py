"""Whether the problems that a plan calls never used are: against the plan's own other problems, and against the ledger."""

from __future__ import annotations

import os
from pathlib import Path

from ablation.ledger.ledger import ledger_path, read_ledger
from ablation.plan.locate import locate
from ablation.plan.model import Plan
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


def _others(plan: Plan, plan_path: Path) -> dict[str, list[Problem]]:
    """What the plan itself uses: the problems in its cells, and the held-out ones."""
    named = {problem for problem, _ in plan.cells}
    found = {"the training problems": [one for one in _at_hand(plan.problems.training, plan_path) if one.id in named]}
    if plan.verdict.held_out is not None and plan.verdict.held_out.problems is not None:
        found["the held-out problems"] = _at_hand(plan.verdict.held_out.problems, plan_path)
    return found


def _at_hand(resource: Resource, plan_path: Path) -> list[Problem]:
    path = locate(resource, plan_path)
    return list(load_problems(path).values()) if resource.owed is None and os.path.exists(path) else []
