"""From rules to labels. What cannot be said stays UNDECIDED; it is never counted as a pass or a fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ablation.plan.model import Plan
from ablation.plan.phase2 import BlindedRead
from ablation.plan.rules import Rule
from ablation.verdict.model import (
    CONFIRMED,
    DAMAGED,
    INCOMPLETE,
    NO_RELEASE,
    NO_WIN,
    NOT_CONFIRMED,
    NOT_REPLICATED,
    RELEASE,
    REPLICATED,
    STABLE,
    STOPPED,
    UNDECIDED,
    WIN_UNVERIFIED,
    WIN_VERIFIED,
    ArmVerdict,
    Reason,
)
from ablation.verdict.rules import Figures, RuleResult, judge


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


def replication(plan: Plan, verdict_of: Callable[[str, str], ArmVerdict | None]) -> Replication:
    """REPLICATED only if the control is damaged and the first stable arm in plan order stable, in both families.

    `verdict_of(family, arm)` is None where there is no result. An arm that a stop rule ended has no readout: it is neither
    damaged nor stable by the damage rules, so a control that stopped cannot replicate, and another arm that stopped is
    passed over when the first stable arm is looked for.
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
    if found.needed:
        found.label = INCOMPLETE
    elif found.reasons:
        found.label = NOT_REPLICATED
    elif found.undecided:
        found.label = UNDECIDED
        for family, arm in found.undecided:
            one = verdict_of(family, arm)
            assert one is not None
            why = "; ".join(f"{result.rule.name}: {result.reason}" for result in one.rules if result.holds is None)
            found.reasons.append(Reason("UNDECIDED", f"`{family}/{arm}` is neither damaged nor stable: {why}.", family))
    else:
        found.label = REPLICATED
        text = f"The control `{control}` was damaged and `{found.stable_arm}` stable, in both {first} and {second}."
        found.reasons.append(Reason("CONTRAST_HELD_TWICE", text))
    return found


def _open(found: Replication, family: str, arm: str, one: ArmVerdict | None) -> bool:
    """Note an arm without a result or without a decision; True if it is one."""
    if one is None:
        found.needed.append((family, arm))
    elif one.label == UNDECIDED:
        found.undecided.append((family, arm))
    else:
        return False
    return True


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
    if headline.reasons and headline.label != REPLICATED:
        why = " ".join(one.text for one in merged(headline.reasons))
        found.append(Reason("REPLICATED_RULED_OUT", f"REPLICATED can no longer come out, whatever is still missing. {why}"))
    return found


def must_hold(results: Sequence[RuleResult]) -> tuple[bool | None, list[Reason]]:
    """True if every rule holds, False if one does not, None if one cannot be said; with a sentence for each that is not met."""
    reasons = [
        Reason("RULE_FAILED", f"`{one.rule.name}` failed: it asks for {one.words}.") for one in results if one.holds is False
    ] + [Reason("RULE_UNDECIDED", f"`{one.rule.name}` cannot be said: {one.reason}.") for one in results if one.holds is None]
    found = [one.holds for one in results]
    return (False if False in found else None if None in found else True), reasons


def held_out_label(passed: bool | None, read: BlindedRead, passes: int | None) -> tuple[str, list[Reason]]:
    """All rules hold: a win, which is verified only by a passed blinded read. `passes` is None if there was none."""
    if passed is None:
        return UNDECIDED, []
    if not passed:
        return NO_WIN, []
    if passes is None:
        return WIN_UNVERIFIED, [Reason("NO_BLINDED_READ", "The numeric rules hold; there was no blinded read.")]
    outcome = f"{passes} of {read.pairs} pairs passed the blinded read; the plan asks for {read.passes}."
    if passes >= read.passes:
        return WIN_VERIFIED, [Reason("BLINDED_READ_PASSED", outcome)]
    return WIN_UNVERIFIED, [Reason("BLINDED_READ_FAILED", outcome)]


def never_used_label(passed: bool | None) -> str:
    return UNDECIDED if passed is None else CONFIRMED if passed else NOT_CONFIRMED


def release_label(passed: bool | None, win: bool | None) -> tuple[str, list[Reason]]:
    """A win on the main set and every guard, or no release. `win` is None if nobody says."""
    if win is False:
        return NO_RELEASE, [Reason("NO_WIN_ON_MAIN_SET", "There was no win on the main set.")]
    if passed is False:
        return NO_RELEASE, []
    if win is None:
        return UNDECIDED, [Reason("WIN_NOT_REPORTED", "Nothing says whether there was a win on the main set.")]
    return (UNDECIDED if passed is None else RELEASE), []
