"""The same rules on figures that somebody reported: no rollouts, so nothing of it can be checked again, and it says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablation.plan.deviations import deviations_path, read_deviations
from ablation.plan.judging import READ_LABELS
from ablation.plan.rules import Rule
from ablation.plan.tables import labels_of
from ablation.verdict.labels import Earlier, decide_section, judge_damage, missing_reasons, must_hold, read_reason, replication
from ablation.verdict.measures_file import MeasuresFile, SectionComparison
from ablation.verdict.measures_reader import load_measures
from ablation.verdict.model import (
    FAILED,
    FROM_REPORT,
    NO_WIN,
    NOT_RUN,
    PASSED,
    REPLICATED,
    WIN,
    WIN_VERIFIED,
    Missing,
    Reason,
    SectionVerdict,
    Verdict,
)
from ablation.verdict.rules import NOT_REPORTED, REPORTED, STATED, RuleResult, judge
from ablation.verdict.run import Locked
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
    level = locked.plan.statistics.level
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
            gate = _gate(found.never_used, before, WIN_VERIFIED, "the held-out check")
            decided = decide_section("never_used", plan.never_used.table, results, earlier)
            sections["never_used"] = _section(decided, results, reasons + gate, found.never_used)
        earlier["never_used"] = (sections["never_used"].label, labels_of("never_used", plan.never_used.table))
    if plan.release is not None:
        sections["release"] = SectionVerdict(NOT_RUN)
        if found.release is not None:
            results, reasons = _judge_all(found.release, plan.release.guards, level)
            win = {None: NOT_RUN, "held": WIN, "not_held": NO_WIN}[found.release.win]
            earlier["main"] = (win, (WIN, NO_WIN))
            decided = decide_section("release", plan.release.table, results, earlier)
            more = {
                NOT_RUN: [Reason("WIN_NOT_REPORTED", "Nothing says whether there was a win on the main set.")],
                NO_WIN: [Reason("NO_WIN_ON_MAIN_SET", "There was no win on the main set.")],
            }
            sections["release"] = _section(decided, results, reasons + more.get(win, []), found.release)
    return sections


def _judge_all(one: SectionComparison, rules: Sequence[Rule], level: float) -> tuple[list[RuleResult], list[Reason]]:
    figures = one.figures(level)
    results = [judge(rule, figures, "the start") for rule in rules]
    return results, must_hold(results)


def _section(decided: Decided, results: list[RuleResult], reasons: list[Reason], one: SectionComparison) -> SectionVerdict:
    return SectionVerdict(decided.label, results, reasons, one.subject_name, one.deviation, decided)


def _gate(one: SectionComparison, found: str, needed: str, of: str) -> list[Reason]:
    """A step that the plan did not allow is a deviation; one that nobody declared is said to be so."""
    if found in (needed, NOT_RUN) or one.deviation is not None:
        return []
    text = f"The plan allows this only after {needed}, and {of} is {found}; the source declares no deviation."
    return [Reason("UNDECLARED_DEVIATION", text)]


def _notes(results: list[RuleResult]) -> list[str]:
    counts: dict[str, Any] = {how: sum(one.how == how for one in results) for how in (STATED, NOT_REPORTED)}
    notes = ["Every figure is as reported: there are no rollouts, so none of them was computed or checked here."]
    if counts[STATED]:
        notes.append(f"{counts[STATED]} rules were decided by the source's own statement, without a figure.")
    if counts[NOT_REPORTED]:
        notes.append(f"{counts[NOT_REPORTED]} rules have neither a figure nor a statement.")
    return notes
