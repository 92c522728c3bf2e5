"""Choosing one of the extension's eligible checkpoints, by the rule that the plan wrote down in advance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ablation.plan.extension import eligible_checks, extension_family
from ablation.plan.phase2 import Preference, Selection
from ablation.rollouts.store import stage_is_complete
from ablation.verdict.evaluated import Compared
from ablation.verdict.exact import exact
from ablation.verdict.gated import extended_by_plan, not_extended_by_plan, why_not_allowed
from ablation.verdict.labels import must_hold
from ablation.verdict.model import (
    INCOMPLETE,
    NONE_ELIGIBLE,
    NOT_RUN,
    SELECTED,
    STABLE,
    UNDECIDED,
    ArmVerdict,
    Missing,
    Reason,
    SectionVerdict,
)
from ablation.verdict.rules import RuleResult, judge, number

if TYPE_CHECKING:
    from ablation.verdict.phase2 import Phase2


@dataclass(frozen=True)
class Candidate:
    """An eligible checkpoint, compared with the start on the selection set."""

    subject: str
    update: int
    required: Sequence[RuleResult]
    numbers: tuple[Fraction | None, ...]
    """One for each preference of the plan; None: undefined."""

    @property
    def keeps(self) -> bool | None:
        """Whether every required rule holds."""
        found = [one.holds for one in self.required]
        return False if False in found else None if None in found else True


def choose(candidates: Sequence[Candidate], prefer: Sequence[Preference], tie: str) -> Candidate | str | None:
    """The candidate that the rule chooses, None if none keeps what is required, or why it cannot be said.

    What is unknown of the required rules matters only if the choice depends on it: it does not exactly if the first in rank of
    all that may keep them surely keeps them. One pass over the candidates for each preference.
    """
    sure = _best([one for one in candidates if one.keeps], prefer, tie)
    if isinstance(sure, str):
        return sure
    rivals = _rivals([one for one in candidates if one is sure or one.keeps is None], sure, prefer)
    first = rivals if isinstance(rivals, str) else _best(rivals, prefer, tie)
    if first is sure or isinstance(first, str):
        return first
    names = ", ".join(one.subject for one in candidates if one.keeps is None)
    return f"whether {names} keeps what is required cannot be said, and the choice depends on it"


def _rivals(left: Sequence[Candidate], sure: Candidate | None, prefer: Sequence[Preference]) -> list[Candidate] | str:
    """Those that `sure` does not beat, or which number is undefined that two of them could need."""
    left = list(left)
    for place, one in enumerate(prefer):
        level: dict[tuple[Fraction | None, ...], list[Candidate]] = {}
        for candidate in left:
            level.setdefault(candidate.numbers[:place], []).append(candidate)
        for equals in level.values():
            lacks = next((candidate.subject for candidate in equals if candidate.numbers[place] is None), None)
            if len(equals) > 1 and lacks is not None:
                return _undefined(one, lacks)
        if sure is not None and len(rest := level[sure.numbers[:place]]) > 1:
            best = max if one.order == "highest" else min
            beaten = {id(it) for it in rest if best(it.numbers[place], sure.numbers[place]) != it.numbers[place]}
            left = [candidate for candidate in left if id(candidate) not in beaten]
    return left


def _undefined(one: Preference, subject: str) -> str:
    return f"`{one.measure}` of {subject} is undefined, and the choice depends on it"


def _best(kept: Sequence[Candidate], prefer: Sequence[Preference], tie: str) -> Candidate | str | None:
    left = list(kept)
    for place, one in enumerate(prefer):
        if len(left) < 2:
            break
        numbers = [candidate.numbers[place] for candidate in left]
        if None in numbers:
            return _undefined(one, left[numbers.index(None)].subject)
        best = (max if one.order == "highest" else min)(numbers)  # type: ignore[type-var]
        left = [candidate for candidate in left if candidate.numbers[place] == best]
    if not left:
        return None
    return left[0] if tie == "earlier" else left[-1]


def judge_selection(phase2: Phase2) -> SectionVerdict:
    """`SELECTED` with the checkpoint, or `NONE_ELIGIBLE`; what is missing is named."""
    reader, extension = phase2.reader, phase2.plan.extension
    assert extension is not None and extension.selection is not None
    section = extension.selection
    checks = list(_checks(phase2))
    eligible = [one for one in checks if one[2] is not None and one[2].label == STABLE]
    missing = [gap for _, _, _, gap in checks if gap is not None]
    begun, reasons = reader.subjects("selection"), _not_extended(phase2)
    if not checks or (not begun and (missing or eligible)):
        return SectionVerdict(NOT_RUN, reasons=reasons)
    names = [f"{arm}@{update}" for arm, update, _, _ in eligible]
    compared = {name: reader.compared("selection", name) if name in begun else None for name in names}
    for name, one in compared.items():
        if one is None:
            missing.append(Missing(f"selection/{name}: was not sampled", reader.command("selection", name)))
        else:
            missing += one.missing
    wrong = [reason for name, one in compared.items() if one for reason in _wrong(phase2, name, one)]
    there = tuple(one for one in compared.values() if one is not None)
    reasons += [_not_eligible(arm, update, found) for arm, update, found, _ in checks if found and found.label != STABLE]
    if missing:
        return SectionVerdict(INCOMPLETE, reasons=reasons, missing=missing, wrong=wrong, compared=there)
    candidates = [
        _candidate(section, one, name, update) for (_, update, _, _), (name, one) in zip(eligible, compared.items(), strict=True)
    ]
    found = selection_of(section, sorted(candidates, key=lambda one: one.update))
    return replace(found, reasons=[*reasons, *found.reasons], wrong=wrong, compared=there)


def selection_of(section: Selection, candidates: Sequence[Candidate]) -> SectionVerdict:
    """What the rule says of `candidates`, which are listed from the earliest to the latest."""
    chosen = choose(candidates, section.prefer, section.tie)
    rows = [_row(section, one, chosen) for one in candidates]
    if isinstance(chosen, str):
        return SectionVerdict(UNDECIDED, reasons=[Reason("UNDECIDED", f"{chosen}.")], candidates=rows)
    if chosen is None:
        failed = [Reason("RULE_FAILED", f"{one.subject}: {text.text}") for one in candidates for text in must_hold(one.required)]
        return SectionVerdict(NONE_ELIGIBLE, reasons=failed, candidates=rows)
    why = _why(section, candidates, chosen)
    return SectionVerdict(SELECTED, chosen.required, [why], chosen.subject, candidates=rows)


def _checks(phase2: Phase2) -> Iterator[tuple[str, int, ArmVerdict | None, Missing | None]]:
    """(arm, update, what the check says, what is missing) of each check whose checkpoint may be chosen, of each extended arm."""
    reader, plan = phase2.reader, phase2.plan
    extension, run = plan.extension, reader.run
    assert extension is not None
    family = extension_family(plan)
    allowed = extended_by_plan(phase2)
    for arm in (one for one in plan.arms if allowed is None or one in allowed):
        made = [update for update in extension.checks if stage_is_complete(run.check(family, arm, update))]
        if not made:
            continue
        over = run.extension_stopped(family, arm).is_file()
        for update in eligible_checks(extension):
            if update in made:
                found = phase2.check(family, arm, update)
                assert found is not None
                yield arm, update, found, None
            elif not over:
                last = phase2.check(family, arm, max(made))
                if last is not None and last.label != STABLE:
                    break  # paused, and nobody went on
                command = f"ablation run --arm {arm} --continue-to {update}{reader.options or ''}"
                if reader.options is None:
                    command = f"whoever made the run `{run.root.name}` has to finish it"
                yield arm, update, None, Missing(f"{family}/{arm}: the check after update {update} is not there", command)


def _not_extended(phase2: Phase2) -> list[Reason]:
    """Arms that were extended and are no candidates, as the plan does not extend them."""
    extension, run = phase2.plan.extension, phase2.reader.run
    assert extension is not None
    family = extension_family(phase2.plan)
    made = [arm for arm in phase2.plan.arms if any(stage_is_complete(run.check(family, arm, k)) for k in extension.checks)]
    found = [reason for arm in made for reason in not_extended_by_plan(phase2, arm)]
    return [Reason(one.code, f"{one.text} Its checkpoints are no candidates.") for one in found]


def _candidate(section: Selection, compared: Compared | None, subject: str, update: int) -> Candidate:
    assert compared is not None and compared.figures is not None
    required = [judge(rule, compared.figures, "the start") for rule in section.require]
    values = [compared.figures.subject.get(one.measure) for one in section.prefer]
    return Candidate(subject, update, required, tuple(None if one is None else exact(one) for one in values))


def _wrong(phase2: Phase2, name: str, compared: Compared) -> list[Reason]:
    return [*compared.wrong, *why_not_allowed(phase2, "selection", name, compared)]


def _not_eligible(arm: str, update: int, found: ArmVerdict) -> Reason:
    return Reason("NOT_ELIGIBLE", f"{arm}@{update}: the check says {found.label}, so it cannot be chosen.")


def _row(section: Selection, one: Candidate, chosen: Any) -> dict[str, Any]:
    numbers = {
        wanted.measure: None if value is None else number(value)
        for wanted, value in zip(section.prefer, one.numbers, strict=True)
    }
    required = [result.as_json() for result in one.required]
    return {"subject": one.subject, "keeps": one.keeps, "numbers": numbers, "chosen": one is chosen, "required": required}


def _why(section: Selection, candidates: Sequence[Candidate], chosen: Candidate) -> Reason:
    """Which step of the rule decided, with the numbers."""
    left = [one for one in candidates if one.keeps is not False]
    if len(left) == 1:
        return Reason("SELECTED", f"{chosen.subject} is the only one that keeps what is required.")
    said = []
    for place, wanted in enumerate(section.prefer):
        shown = ", ".join(f"{one.subject} {_shown(one.numbers[place])}" for one in left)
        said.append(f"{wanted.measure} ({wanted.order}): {shown}")
        best = [one for one in left if one.numbers[place] == chosen.numbers[place]]
        if len(best) == 1:
            return Reason("SELECTED", f"{chosen.subject} by {'; '.join(said)}.")
        left = best
    return Reason("SELECTED", f"{chosen.subject}: all are equal in {'; '.join(said)}; then the {section.tie} one.")


def _shown(value: Fraction | None) -> str:
    return "undefined" if value is None else f"{number(value):g}" if value.denominator != 1 else str(value.numerator)
