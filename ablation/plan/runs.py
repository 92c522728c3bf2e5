"""The runs of a plan, one arm in one family of seeds each: the list that the runner, its gates and every page ask."""

from __future__ import annotations

from collections.abc import Callable

from ablation.plan.model import Plan

FIRST_STABLE_ARM = "first stable arm"
"""Stands for the arm that is run again, where nobody knows yet which one that is."""
Run = tuple[str, str]
"""(family, arm)"""


def planned_runs(plan: Plan, stable: str | None = None, also: Callable[[str, str], bool] | None = None) -> list[Run]:
    """Every run that the plan asks for: the first family's, the replication's, then those of the other families that claims
    need; in a family in the order of the arms.

    `stable`: the first stable arm, which is run again; None while it is not known, or if there is none. `also` says of a
    (family, arm) whether it belongs to the list though the plan does not ask for it: it is on disk, for instance.
    """
    first, second = plan.main_family, plan.verdict.replication.family
    wanted = {(first, arm) for arm in plan.arms} | {(second, plan.verdict.replication.control), (second, stable)}
    wanted |= {
        (family, arm)
        for claim in plan.verdict.claims.values()
        for family in claim.families or ()
        for arm in (*claim.subjects, claim.reference)
    }
    families = dict.fromkeys((first, second, *plan.families))
    runs = [(family, arm) for family in families for arm in plan.arms]
    return [run for run in runs if run in wanted or (also is not None and also(*run))]


def families_of(runs: list[Run]) -> list[str]:
    """The families of `runs`, each once, in their order."""
    return list(dict.fromkeys(family for family, _ in runs))


def runs_for_claims(plan: Plan) -> dict[str, list[str]]:
    """Family -> the arms that run in it for a claim alone."""
    headline = [(plan.main_family, arm) for arm in plan.arms]
    headline.append((plan.verdict.replication.family, plan.verdict.replication.control))
    found: dict[str, list[str]] = {}
    for family, arm in planned_runs(plan):
        if (family, arm) not in headline:
            found.setdefault(family, []).append(arm)
    return found


def perhaps_again(plan: Plan) -> list[str]:
    """Arms that run in the second family only if they turn out to be the first stable one."""
    second, runs = plan.verdict.replication.family, planned_runs(plan)
    return [arm for arm in plan.arms if (second, arm) not in runs]
