"""How measures become labels: the `verdict` section of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ablation.plan.claims import Claim, claim_problems
from ablation.plan.phase2 import HeldOut, NeverUsed, Release, guard_problems
from ablation.plan.rules import Rule, rule_list_problems
from ablation.plan.section import Name, Section, Share, did_you_mean
from ablation.plan.tables import STUDY, Table, labels_of, table_problems

if TYPE_CHECKING:
    from ablation.plan.model import Plan

REPLICATION_REASONS = ("CONTROL_NOT_DAMAGED", "NO_STABLE_ARM", "NOT_STABLE_AGAIN", "STOPPED")
READ_LABELS = ("PASSED", "FAILED", "UNDECIDED", "NOT_RUN")
Problem = tuple[tuple[str | int, ...], str]


class Replication(Section):
    """The control and the first stable arm in plan order, run again in the seeds of `family`."""

    control: Name
    """The arm that must be damaged in both families; the first in `arms`."""
    family: Name
    """The second family. The first one in `families` is the one that all arms run in."""
    table: Table = STUDY
    """From the reasons found to the label: `study`, or rows of a decision table."""


class UnreadLimits(Section):
    """How many answers may be unread: of the rollouts that ended by themselves, those with no answer that the grader reads."""

    at_most: Share = 0.5
    """A stage with a larger share of unread answers decides nothing, nor does one that is set against it."""
    differ_at_most: Share = 0.2
    """Nor do two stages whose shares differ by more than this."""


class Verdict(Section):
    """How measures become labels."""

    later: ClassVar[frozenset[str]] = frozenset({"unread"})

    damage: list[Rule]
    """A run is damaged if any of these holds against the sweep of its family."""
    replication: Replication
    """What is run again, and where."""
    held_out: HeldOut | None = None
    """Phase 2, only after `REPLICATED`: a win or not."""
    never_used: NeverUsed | None = None
    """Phase 2, after a verified win: confirmed or not."""
    release: Release | None = None
    """When a checkpoint may be released."""
    claims: dict[Name, Claim] = Field(default_factory=dict)
    """Tests between arms, beside the labels."""
    unread: UnreadLimits | None = None
    """When too many answers are unread for a label; left out: the share is shown, with a warning, and decides nothing."""


def verdict_problems(plan: Plan, start: str) -> list[Problem]:
    """What is wrong in `verdict`, and between it and the rest of the plan; paths are below the plan."""
    verdict, rollouts = plan.verdict, plan.sweep_rollouts
    problems: list[Problem] = []
    if not verdict.damage:
        problems.append((("damage",), "there is no rule, so no run could ever be damaged"))
    problems += rule_list_problems(verdict.damage, rollouts, ("damage",))
    for name in ("held_out", "never_used"):
        section = getattr(verdict, name)
        if section is not None:
            problems += rule_list_problems(section.rules, section.rollouts, (name, "rules"))
    release = verdict.release
    if release is not None:
        others = {"held_out": verdict.held_out, "never_used": verdict.never_used}
        problems += rule_list_problems(release.guards, None, ("release", "guards"))
        problems += [(("release", "guards", *path), text) for path, text in guard_problems(release, others)]
        if release.main is not None:
            problems += rule_list_problems(release.main.rules, release.main.rollouts, ("release", "main", "rules"))
    problems += _tables(plan)
    problems += [(("claims", *path), text) for path, text in claim_problems(verdict.claims, plan.arms, plan.families, start)]
    family = plan.evaluation.family
    found: list[Problem] = [(("verdict", *path), text) for path, text in problems]
    if family is not None and family not in plan.families:
        text = f"there is no family `{family}`; families: {', '.join(plan.families)}{did_you_mean(family, plan.families)}"
        found.append((("evaluation", "family"), text))
    return found


def _tables(plan: Plan) -> Iterable[Problem]:
    verdict, labels = plan.verdict, {}
    phase2 = any((verdict.held_out, verdict.never_used, plan.extension))
    at = ("replication", "table")
    needed = {"REPLICATED": "phase 2 needs it"} if phase2 else {}
    one = verdict.replication.table
    yield from table_problems("replication", one, at, rules=(), labels={}, reasons=REPLICATION_REASONS, needed=needed)
    labels["replication"] = labels_of("replication", one)
    if verdict.held_out is not None:
        section = verdict.held_out
        needed = {"WIN_VERIFIED": "the check on never-used problems needs it"} if verdict.never_used is not None else {}
        labels["blinded_read"] = READ_LABELS
        names = [rule.name for rule in section.rules]
        yield from table_problems("held_out", section.table, ("held_out", "table"), rules=names, labels=labels, needed=needed)
        labels["held_out"] = labels_of("held_out", section.table)
    if verdict.never_used is not None:
        other = verdict.never_used
        names = [rule.name for rule in other.rules]
        yield from table_problems("never_used", other.table, ("never_used", "table"), rules=names, labels=labels)
        labels["never_used"] = labels_of("never_used", other.table)
    release = verdict.release
    if release is None:
        return
    if release.main is not None:
        names, at = [rule.name for rule in release.main.rules], ("release", "main", "table")
        needed = {"WIN": "a release needs it"}
        yield from table_problems("main", release.main.table, at, rules=names, labels=labels, needed=needed)
        labels["main"] = labels_of("main", release.main.table)
    names = [rule.name for rule in release.guards]
    needed = {"RELEASE": "nothing could be released"}
    yield from table_problems("release", release.table, ("release", "table"), rules=names, labels=labels, needed=needed)
