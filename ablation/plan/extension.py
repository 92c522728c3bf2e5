"""The extension: more updates of an arm that has had its readout, under checks that pause it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ablation.plan.phase2 import Selection
from ablation.plan.rules import Rule, rule_list_problems
from ablation.plan.section import Name, PositiveInt, Section, did_you_mean

if TYPE_CHECKING:
    from ablation.plan.model import Plan

FIRST_STABLE = "first_stable"
MOST_UPDATES = 1000

Problem = tuple[tuple[str | int, ...], str]


class Extension(Section):
    """More updates of an arm after its readout: the same optimizer state goes on, and checks for damage can pause it.

    Only after `REPLICATED`. The verdict on the arm stays the one of its readout.
    """

    arms: Literal["first_stable"] | list[Name] = FIRST_STABLE
    """The arms that may be extended: `first_stable`, the one that the plan replicates, or a list of names."""
    family: Name | None = None
    """The family in which they go on; left out: the plan's first."""
    updates: int = Field(ge=2, le=MOST_UPDATES)
    """The last update allowed, counted from the arm's first one."""
    checks: list[PositiveInt]
    """After which of the further updates the arm is sampled on all cells, in the seeds of the family's sweep."""
    damage: list[Rule] | None = None
    """A check against the family's sweep pauses the run if any of these holds; left out: `verdict.damage`."""
    eligible: list[PositiveInt] | None = None
    """Checks whose checkpoints may be chosen later, if they find no damage; left out: all of them."""
    selection: Selection | None = None
    """How one of the eligible checkpoints is chosen."""


def extension_family(plan: Plan) -> str:
    """The family in which the plan's extension runs."""
    assert plan.extension is not None
    return plan.extension.family or plan.main_family


def check_rules(plan: Plan) -> list[Rule]:
    """The damage rules of the extension's checks."""
    assert plan.extension is not None
    return plan.verdict.damage if plan.extension.damage is None else plan.extension.damage


def eligible_checks(extension: Extension) -> list[int]:
    """Checks whose checkpoints may be chosen later."""
    return list(extension.checks if extension.eligible is None else extension.eligible)


def extension_problems(plan: Plan) -> list[Problem]:
    """What is wrong between the extension and the rest of the plan."""
    found = plan.extension
    if found is None:
        return []
    problems = [*_arms(plan, found), *_family(plan, found), *_updates(plan, found)]
    if found.damage is not None and not found.damage:
        problems.append((("damage",), "there is no rule, so no check could pause the run; leave it out to use `verdict.damage`"))
    problems += rule_list_problems(found.damage or [], plan.sweep_rollouts, ("damage",))
    if found.selection is not None:
        problems += rule_list_problems(found.selection.require, found.selection.rollouts, ("selection", "require"))
    return [(("extension", *path), text) for path, text in problems]


def _arms(plan: Plan, found: Extension) -> list[Problem]:
    if found.arms == FIRST_STABLE:
        return []
    problems: list[Problem] = [] if found.arms else [(("arms",), "there is no arm")]
    for index, name in enumerate(found.arms):
        if name not in plan.arms:
            text = f"there is no arm `{name}`; arms: {', '.join(plan.arms)}{did_you_mean(name, plan.arms)}"
            problems.append((("arms", index), text))
        elif plan.arms[name].trained_as_a_whole:
            problems.append(
                (("arms", index), f"`{name}` is trained as a whole (`external.each: arm`), so it has no further update")
            )
        if name in found.arms[:index]:
            problems.append((("arms", index), f"`{name}` is listed twice"))
    return problems


def _family(plan: Plan, found: Extension) -> list[Problem]:
    name = found.family
    if name is None or name in (plan.main_family, plan.verdict.replication.family):
        return []
    if name in plan.families:
        return [(("family",), f"no arm runs in family `{name}`")]
    text = f"there is no family `{name}`; families: {', '.join(plan.families)}{did_you_mean(name, plan.families)}"
    return [(("family",), text)]


def _updates(plan: Plan, found: Extension) -> list[Problem]:
    own = plan.training.updates
    if found.updates <= own:
        return [(("updates",), f"found {found.updates}, but every arm has {own} updates (training.updates) without an extension")]
    problems: list[Problem] = [] if found.checks else [(("checks",), "there is no check, so nothing could pause the run")]
    problems += _ascending("checks", found.checks)
    for index, update in enumerate(found.checks):
        if not own < update <= found.updates:
            text = f"found {update}; a check is made after one of the updates {own + 1} to {found.updates}"
            problems.append((("checks", index), text))
    eligible = found.eligible
    if eligible is None:
        return problems
    if not eligible:
        problems.append((("eligible",), "no checkpoint could be chosen; leave it out to allow all that are checked"))
    problems += _ascending("eligible", eligible)
    for index, update in enumerate(eligible):
        if update not in found.checks:
            text = f"found {update}, which is no check; checks: {', '.join(map(str, found.checks))}"
            problems.append((("eligible", index), text))
    return problems


def _ascending(name: str, updates: list[int]) -> list[Problem]:
    return [
        ((name, index), f"found {later} after {earlier}; they must be listed in ascending order, each once")
        for index, (earlier, later) in enumerate(itertools.pairwise(updates), start=1)
        if later <= earlier
    ]
