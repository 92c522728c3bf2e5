"""The same rules on figures that somebody reported: no rollouts, so nothing of it can be checked again, and it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablation.plan.deviations import deviations_path, read_deviations
from ablation.plan.rules import Rule
from ablation.verdict.labels import (
    held_out_label,
    judge_damage,
    missing_reasons,
    must_hold,
    never_used_label,
    release_label,
    replication,
)
from ablation.verdict.measures_file import MeasuresFile, SectionComparison
from ablation.verdict.measures_reader import load_measures
from ablation.verdict.model import (
    FROM_REPORT,
    NOT_RUN,
    REPLICATED,
    WIN_VERIFIED,
    Missing,
    Reason,
    SectionVerdict,
    Verdict,
)
from ablation.verdict.rules import NOT_REPORTED, REPORTED, STATED, RuleResult, judge
from ablation.verdict.run import Locked


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
    if plan.held_out is not None:
        sections["held_out"] = SectionVerdict(NOT_RUN)
        if found.held_out is not None:
            passed, results, reasons = _judge_all(found.held_out, plan.held_out.rules, level)
            passes = found.blinded_read.passes if found.blinded_read else None
            label, more = held_out_label(passed, plan.held_out.blinded_read, passes)
            gate = _gate(found.held_out, headline, REPLICATED, "the replication")
            sections["held_out"] = _section(label, results, reasons + more + gate, found.held_out)
    if plan.never_used is not None:
        sections["never_used"] = SectionVerdict(NOT_RUN)
        if found.never_used is not None:
            passed, results, reasons = _judge_all(found.never_used, plan.never_used.rules, level)
            before = sections["held_out"].label if "held_out" in sections else NOT_RUN
            gate = _gate(found.never_used, before, WIN_VERIFIED, "the held-out check")
            sections["never_used"] = _section(never_used_label(passed), results, reasons + gate, found.never_used)
    if plan.release is not None:
        sections["release"] = SectionVerdict(NOT_RUN)
        if found.release is not None:
            passed, results, reasons = _judge_all(found.release, plan.release.guards, level)
            win = None if found.release.win is None else found.release.win == "held"
            label, more = release_label(passed, win)
            sections["release"] = _section(label, results, reasons + more, found.release)
    return sections


def _judge_all(one: SectionComparison, rules: list[Rule], level: float) -> tuple[bool | None, list[RuleResult], list[Reason]]:
    figures = one.figures(level)
    results = [judge(rule, figures, "the start") for rule in rules]
    passed, reasons = must_hold(results)
    return passed, results, reasons


def _section(label: str, results: list[RuleResult], reasons: list[Reason], one: SectionComparison) -> SectionVerdict:
    return SectionVerdict(label, results, reasons, subject=one.subject_name, deviation=one.deviation)


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
