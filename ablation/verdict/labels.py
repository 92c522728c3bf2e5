"""From rules to labels. What cannot be said stays UNDECIDED; it is never counted as a pass or a fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ablation.plan.judging import REPLICATION_REASONS
from ablation.plan.model import Plan
from ablation.plan.phase2 import BlindedRead
from ablation.plan.rules import Rule
from ablation.plan.tables import Row, Table, rows_of
from ablation.verdict.model import (
    DAMAGED,
    FAILED,
    INCOMPLETE,
    NO_STEP,
    NOT_RUN,
    PASSED,
    REPLICATED,
    STABLE,
    STOPPED,
    UNDECIDED,
    ArmVerdict,
    Reason,
)
from ablation.verdict.rules import Figures, RuleResult, judge
from ablation.verdict.tables import Decided, Facts, asked, decide, possible_labels

Earlier = dict[str, tuple[str, Sequence[str]]]
"""What `of` may name -> (its label, the labels that it can have)."""


def judge_damage(family: str, arm: str, rules: Sequence[Rule], figures: Figures) -> ArmVerdict:
    """DAMAGED if any rule holds; STABLE if none does; UNDECIDED if none does and some cannot be said."""
    results = [judge(rule, figures) for rule in rules]
    found = [one.holds for one in results]
    label = DAMAGED if True in found else UNDECIDED if None in found else STABLE
    return ArmVerdict(family, arm, label, results, figures)


@dataclass
class Replication:
    """The headline, and how far the procedure of the plan could be followed."""

    label: str = INCOMPLETE
    reasons: list[Reason] = field(default_factory=list)
    stable_arm: str | None = None
    needed: list[tuple[str, str]] = field(default_factory=list)
    """(family, arm) pairs that are not there, and that the next step needs."""
    undecided: list[tuple[str, str]] = field(default_factory=list)
    """Those whose rules cannot be said, or that took no step."""
    ruled_out: bool = False
    """Whether REPLICATED can no longer come out, whatever is still missing."""
    decided: Decided | None = None
    """What the plan's table says; None while results that it needs are not there."""


def replication(plan: Plan, verdict_of: Callable[[str, str], ArmVerdict | None]) -> Replication:
    """By the plan's table; the study's says REPLICATED only if the control is damaged and the first stable arm in plan order is
    stable, in both families.

    `verdict_of(family, arm)` is None where there is no result. An arm that a stop rule ended has no readout: it is neither
    damaged nor stable by the damage rules, so a control that stopped cannot replicate, and another arm that stopped is
    passed over when the first stable arm is looked for. So is one that took no step; where the control, or the stable arm in the
    second family, took none, what it would have been stays open.
    """
    first, second, control = plan.main_family, plan.verdict.replication.family, plan.verdict.replication.control
    found = Replication()
    for family in (first, second):
        one = verdict_of(family, control)
        if _open(found, family, control, one) or one is None or one.label == DAMAGED:
            continue
        if one.label == STOPPED:
            found.reasons.append(_stopped(one, "so whether it is damaged was not measured"))
        else:
            text = (
                f"The control `{control}` was not damaged in {family}: no damage rule fired. In those seeds this is no "
                "evidence for or against the other arms: there was no damage for them to prevent."
            )
            text += "".join(f" `{name}` could not fire: {why}." for name, why in one.cannot_fire())
            found.reasons.append(Reason("CONTROL_NOT_DAMAGED", text, family))
    blocked = False
    for arm in (name for name in plan.arms if name != control):
        one = verdict_of(first, arm)
        if one is not None and one.label == NO_STEP:
            continue
        if _open(found, first, arm, one):
            blocked = True  # whether a later arm is the first stable one depends on this one
            break
        if one is not None and one.label == STABLE:
            found.stable_arm = arm
            break
    if found.stable_arm is not None:
        one = verdict_of(second, found.stable_arm)
        if not _open(found, second, found.stable_arm, one) and one is not None and one.label != STABLE:
            if one.label == STOPPED:
                found.reasons.append(_stopped(one, "so it is not shown to be stable again"))
            else:
                fired = ", ".join(result.rule.name for result in one.rules if result.holds)
                text = f"`{found.stable_arm}` was stable in {first} and is damaged in {second} ({fired})."
                found.reasons.append(Reason("NOT_STABLE_AGAIN", text, second))
    elif not blocked:
        text = f"No arm beside the control `{control}` was stable in {first}."
        found.reasons.append(Reason("NO_STABLE_ARM", text, first))
    rows, so_far = rows_of("replication", plan.verdict.replication.table), {one.code for one in found.reasons}
    if found.needed:
        possible = {code: True if code in so_far else None for code in REPLICATION_REASONS}
        found.ruled_out = bool(so_far) and REPLICATED not in possible_labels(rows, Facts(reasons=possible))
        return found
    unknown = _may_be_found(plan, found, blocked)
    facts = Facts(reasons={code: True if code in so_far else None if code in unknown else False for code in REPLICATION_REASONS})
    found.decided = decide(rows, facts)
    found.label = found.decided.label
    found.ruled_out = bool(so_far) and found.label not in (REPLICATED, UNDECIDED)
    if found.label == UNDECIDED or not found.reasons:
        for family, arm in found.undecided:
            one = verdict_of(family, arm)
            assert one is not None
            found.reasons.append(Reason(one.label, f"`{family}/{arm}` is neither damaged nor stable: {why_open(one)}.", family))
    if not found.reasons:
        text = f"The control `{control}` was damaged and `{found.stable_arm}` stable, in both {first} and {second}."
        found.reasons.append(Reason("CONTRAST_HELD_TWICE", text))
    return found


def _may_be_found(plan: Plan, found: Replication, blocked: bool) -> set[str]:
    """Reasons that an undecided arm leaves open."""
    unknown: set[str] = set()
    for family, arm in found.undecided:
        if arm == plan.verdict.replication.control:
            unknown.add("CONTROL_NOT_DAMAGED")
        elif family == plan.verdict.replication.family:
            unknown.add("NOT_STABLE_AGAIN")
    return unknown | ({"NO_STABLE_ARM", "NOT_STABLE_AGAIN", "STOPPED"} if blocked else set())


def _open(found: Replication, family: str, arm: str, one: ArmVerdict | None) -> bool:
    """Note an arm without a result or without a decision; True if it is one."""
    if one is None:
        found.needed.append((family, arm))
    elif one.label in (UNDECIDED, NO_STEP):
        found.undecided.append((family, arm))
    else:
        return False
    return True


def why_open(one: ArmVerdict) -> str:
    """Why an arm with a readout has no decision, in words."""
    if one.label == NO_STEP:
        return "no update of it took a step, so its readout is of the starting model and nothing was tried"
    return "; ".join(f"{result.rule.name}: {result.reason}" for result in one.rules if result.holds is None)


def _stopped(one: ArmVerdict, so: str) -> Reason:
    stop = one.stopped or {}
    text = f"`{one.name}` was ended by stop rule `{stop.get('rule')}` after update {stop.get('update')} and has no readout, {so}."
    return Reason("STOPPED", text, one.family)


def merged(reasons: Iterable[Reason]) -> list[Reason]:
    """Reasons that say the same of several families as one that names them all: `in main and replication`."""
    found: dict[tuple[str, str], tuple[Reason, list[str]]] = {}
    for one in reasons:
        words = one.text if one.family is None else one.text.replace(f" in {one.family}", " in \0", 1)
        families = found.setdefault((one.code, words), (one, []))[1]
        families += [] if one.family is None else [one.family]
    together = []
    for (code, words), (one, families) in found.items():
        alone = len(families) < 2
        together.append(one if alone else Reason(code, words.replace("\0", " and ".join(families), 1)))
    return together


def missing_reasons(text: str, headline: Replication) -> list[Reason]:
    """Why there is no label yet, and whether REPLICATED is ruled out by what is there: no later result takes that back."""
    found = [Reason("MISSING", text)]
    if headline.ruled_out:
        why = " ".join(one.text for one in merged(headline.reasons))
        found.append(Reason("REPLICATED_RULED_OUT", f"REPLICATED can no longer come out, whatever is still missing. {why}"))
    return found


def must_hold(results: Sequence[RuleResult]) -> list[Reason]:
    """A sentence for each rule that does not hold, and for each that cannot be said."""
    failed = [
        Reason("RULE_FAILED", f"`{one.rule.name}` failed: it asks for {one.words}.") for one in results if one.holds is False
    ]
    unknown = [one for one in results if one.holds is None]
    return failed + [Reason("RULE_UNDECIDED", f"`{one.rule.name}` cannot be said: {one.reason}.") for one in unknown]


def decide_section(section: str, table: Table, results: Sequence[RuleResult], earlier: Earlier | None = None) -> Decided:
    """What the table of `section` says."""
    rows = rows_of(section, table)
    labels = {name: _label_fact(rows, name, *found) for name, found in (earlier or {}).items()}
    return decide(rows, Facts({one.rule.name: one.holds for one in results}, labels))


def _label_fact(rows: Sequence[Row], name: str, label: str, known: Sequence[str]) -> str | Sequence[str]:
    """A label that says nothing may be any of `known`, unless the table itself asks whether it is that."""
    return label if label in known or label in asked(rows, name) else tuple(known)


def read_reason(read: BlindedRead, label: str, passes: int | None) -> Reason:
    """What came of the blinded read, in a sentence."""
    if label == NOT_RUN or passes is None:
        return Reason("NO_BLINDED_READ", "The numeric rules hold; there was no blinded read.")
    outcome = f"{passes} of {read.pairs} pairs passed the blinded read; the plan asks for {read.passes}."
    return Reason({PASSED: "BLINDED_READ_PASSED", FAILED: "BLINDED_READ_FAILED"}.get(label, "BLINDED_READ_UNDECIDED"), outcome)
