"""The same rules on figures that somebody reported: no rollouts, so nothing of it can be checked again, and it says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ablation.plan.deviations import deviations_path, read_deviations
from ablation.plan.judging import READ_LABELS
from ablation.plan.phase2 import Release, Selection
from ablation.plan.rules import Rule
from ablation.plan.tables import labels_of
from ablation.verdict.exact import exact
from ablation.verdict.labels import Earlier, decide_section, judge_damage, missing_reasons, must_hold, read_reason, replication
from ablation.verdict.locked import Locked
from ablation.verdict.measures_file import Comparison, MeasuresFile, ReportedSelection, SectionComparison
from ablation.verdict.measures_file import Release as ReportedRelease
from ablation.verdict.measures_reader import judge_guard, load_measures
from ablation.verdict.model import (
    FAILED,
    FROM_REPORT,
    NO_WIN,
    NOT_RUN,
    PASSED,
    REPLICATED,
    SELECTED,
    UNDECLARED,
    WIN,
    WIN_VERIFIED,
    Missing,
    Reason,
    SectionVerdict,
    Verdict,
)
from ablation.verdict.rules import NOT_REPORTED, REPORTED, STATED, Figures, RuleResult, judge
from ablation.verdict.selection import Candidate, selection_of
from ablation.verdict.tables import Decided


def judge_reported(path: Path, locked: Locked) -> Verdict:
    """The verdict on the figures in the measures file at `path`. Raises `MeasuresError` if they cannot be used."""
    plan, found = locked.plan, load_measures(path, locked.plan)
    arms = {
        (one.family, one.arm): judge_damage(one.family, one.arm, plan.verdict.damage, one.figures(plan.statistics.level))
        for one in found.comparisons
    }
    headline = replication(plan, lambda family, arm: arms.get((family, arm)))
    label, reasons, missing = headline.label, headline.reasons, []
    if not found.comparisons:
        label, reasons = NOT_RUN, [Reason("NOT_IN_FILE", "The file has no comparisons of readouts with sweeps.")]
    elif headline.needed:
        missing = [Missing(f"{family}/{arm}: is not in the file", f"add it to {path}") for family, arm in headline.needed]
        reasons = missing_reasons("Comparisons that the plan's rules need are not in the file.", headline)
    sections = _sections(found, locked, label)
    return Verdict(
        plan=plan.name,
        digest=locked.digest,
        source=FROM_REPORT,
        label=label,
        reasons=reasons,
        missing=missing,
        arms=[arms[pair] for family in plan.families for arm in plan.arms if (pair := (family, arm)) in arms],
        stable_arm=headline.stable_arm,
        sections=sections,
        counts=[one.model_dump() | {"points": round(float(one.points), 6), "how": REPORTED} for one in found.counts],
        reported_by=found.source,
        deviations=read_deviations(deviations_path(locked.path), locked.digest),
        notes=_notes([rule for one in [*arms.values(), *sections.values()] for rule in one.rules]),
    )


def _sections(found: MeasuresFile, locked: Locked, headline: str) -> dict[str, SectionVerdict]:
    plan, sections = locked.plan.verdict, {}
    level, selected = locked.plan.statistics.level, _selection(found, locked, headline)
    earlier: Earlier = {"replication": (headline, labels_of("replication", plan.replication.table))}
    if plan.held_out is not None:
        sections["held_out"] = SectionVerdict(NOT_RUN)
        if found.held_out is not None:
            results, reasons = _judge_all(found.held_out, plan.held_out.rules, level)
            read, passes = plan.held_out.blinded_read, found.blinded_read.passes if found.blinded_read else None
            label = NOT_RUN if passes is None else PASSED if passes >= read.passes else FAILED
            earlier["blinded_read"] = (label, READ_LABELS)
            decided = decide_section("held_out", plan.held_out.table, results, earlier)
            more = [read_reason(read, label, passes)] if all(one.holds for one in results) else []
            gate = _gate(found.held_out, headline, REPLICATED, "the replication")
            sections["held_out"] = _section(decided, results, reasons + more + gate, found.held_out)
        earlier["held_out"] = (sections["held_out"].label, labels_of("held_out", plan.held_out.table))
    if plan.never_used is not None:
        sections["never_used"] = SectionVerdict(NOT_RUN)
        if found.never_used is not None:
            results, reasons = _judge_all(found.never_used, plan.never_used.rules, level)
            before = sections["held_out"].label if "held_out" in sections else NOT_RUN
            gate = _gate(found.never_used, before, WIN_VERIFIED, "the held-out check", plan.held_out is not None)
            decided = decide_section("never_used", plan.never_used.table, results, earlier)
            more = _not_selected(found.never_used, selected)
            sections["never_used"] = _section(decided, results, reasons + more + gate, found.never_used)
        earlier["never_used"] = (sections["never_used"].label, labels_of("never_used", plan.never_used.table))
    if selected is not None:
        sections["selection"] = selected
    if plan.release is not None:
        if plan.release.main is not None:
            one = _main(found.release, plan.release, level, earlier)
            gate = _release_gate(found.release, headline, selected) if found.release is not None and found.release.main else []
            sections["main"] = replace(one, reasons=[*one.reasons, *gate])
        sections["release"] = SectionVerdict(NOT_RUN)
        if found.release is not None:
            gate = _not_selected(found.release, selected) + _release_gate(found.release, headline, selected)
            one = _release(found, found.release, plan.release, level, earlier)
            sections["release"] = replace(one, reasons=[*one.reasons, *gate])
    return sections


def _selection(found: MeasuresFile, locked: Locked, headline: str) -> SectionVerdict | None:
    """None if the plan selects nothing."""
    extension, one = locked.plan.extension, found.selection
    if extension is None or extension.selection is None:
        return None
    if one is None:
        return SectionVerdict(NOT_RUN)
    chosen = selection_of(extension.selection, _candidates(one, extension.selection))
    reasons = [*chosen.reasons, *_gate(one, headline, REPLICATED, "the replication")]
    return replace(chosen, reasons=reasons, deviation=one.deviation)


def _main(found: ReportedRelease | None, plan: Release, level: float, earlier: Earlier) -> SectionVerdict:
    if found is None or found.main is None or plan.main is None:
        return SectionVerdict(NOT_RUN)
    results, reasons = _judge_all(found.main, plan.main.rules, level)
    return _section(decide_section("main", plan.main.table, results, earlier), results, reasons, found)


def _release(file: MeasuresFile, found: ReportedRelease, plan: Release, level: float, earlier: Earlier) -> SectionVerdict:
    """Each guard on the figures of its own set, and the main set's label by its table or as the source says."""
    results = [judge_guard(file, guard, level) for guard in plan.guards]
    label, known, more = {None: NOT_RUN, "held": WIN, "not_held": NO_WIN}[found.win], (WIN, NO_WIN), []
    if found.main is not None and plan.main is not None:
        main = _main(found, plan, level, earlier)
        label, known = main.label, tuple(labels_of("main", plan.main.table))
        more = [Reason("MAIN_SET", f"The main set says {label}.")]
    elif label == NOT_RUN:
        more = [Reason("WIN_NOT_REPORTED", "Nothing says whether there was a win on the main set.")]
    elif label == NO_WIN:
        more = [Reason("NO_WIN_ON_MAIN_SET", "There was no win on the main set.")]
    decided = decide_section("release", plan.table, results, earlier | {"main": (label, known)})
    return _section(decided, results, must_hold(results) + more, found)


def _candidates(found: ReportedSelection, plan: Selection) -> list[Candidate]:
    """The checkpoints as the file lists them, the earliest first."""
    candidates = []
    for place, one in enumerate(found.candidates):
        size = {"rollouts": one.rollouts}
        subject, reference = (size | side.model_dump(exclude_none=True) for side in (one.subject, one.reference))
        figures = Figures(subject, reference, how=REPORTED)
        required = [judge(rule, figures, "the start") for rule in plan.require]
        values = [subject.get(wanted.measure) for wanted in plan.prefer]
        numbers = tuple(None if value is None else exact(value) for value in values)
        candidates.append(Candidate(one.subject_name, place, required, numbers))
    return candidates


def _judge_all(one: Comparison, rules: Sequence[Rule], level: float) -> tuple[list[RuleResult], list[Reason]]:
    figures = one.figures(level)
    results = [judge(rule, figures, "the start") for rule in rules]
    return results, must_hold(results)


def _section(decided: Decided, results: list[RuleResult], reasons: list[Reason], one: SectionComparison) -> SectionVerdict:
    return SectionVerdict(decided.label, results, reasons, one.subject_name, one.deviation, decided)


def _gate(one: SectionComparison | ReportedSelection, found: str, needed: str, of: str, needs_file: bool = False) -> list[Reason]:
    """A step that the plan did not allow is a deviation; one that nobody declared is said to be so.

    `needs_file`: so is one that rests on what the file does not have.
    """
    if found == needed or one.deviation is not None or (found == NOT_RUN and not needs_file):
        return []
    what = f"{of} is {'not in the file' if found == NOT_RUN else found}"
    text = f"The plan allows this only after {needed}, and {what}; the source declares no deviation."
    return [Reason(UNDECLARED, text)]


def _release_gate(one: SectionComparison, headline: str, selected: SectionVerdict | None) -> list[Reason]:
    """What the plan asks for before a release: the replication, and a selection of this checkpoint."""
    found = _gate(one, headline, REPLICATED, "the replication", needs_file=True)
    if found or selected is None:
        return found
    other = selected.label == SELECTED and selected.subject != one.subject_name
    chosen = f"of {selected.subject}" if other else selected.label
    return _gate(one, chosen, SELECTED, "the selection", needs_file=True)


def _not_selected(one: SectionComparison, selected: SectionVerdict | None) -> list[Reason]:
    """That the file's own selection chose another checkpoint, or none."""
    if selected is None or selected.label == NOT_RUN or (selected.label, selected.subject) == (SELECTED, one.subject_name):
        return []
    which = selected.subject if selected.label == SELECTED else f"the selection says {selected.label}"
    return [Reason("NOT_SELECTED", f"{one.subject_name} is not the selected checkpoint ({which}).")]


def _notes(results: list[RuleResult]) -> list[str]:
    counts: dict[str, Any] = {how: sum(one.how == how for one in results) for how in (STATED, NOT_REPORTED)}
    notes = ["Every figure is as reported: there are no rollouts, so none of them was computed or checked here."]
    if counts[STATED]:
        notes.append(f"{counts[STATED]} rules were decided by the source's own statement, without a figure.")
    if counts[NOT_REPORTED]:
        notes.append(f"{counts[NOT_REPORTED]} rules have neither a figure nor a statement.")
    return notes
