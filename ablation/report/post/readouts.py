"""What the arms came to on the training cells: readouts, drift and damage rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from ablation.measures.estimate import METHODS
from ablation.plan.words import number as limit_words
from ablation.report.numbers import with_sign
from ablation.report.post.curves import READOUT, Point
from ablation.report.post.document import Block, Cell, Column, Facts, Figure, Items, Parts, Section, Table, Tone, text
from ablation.report.post.document import number as num
from ablation.report.post.study import Study, tone_of
from ablation.report.post.traces import SWEEP, parts_of, pointer
from ablation.report.verdict_parts import NOTHING, how_computed, ratio, shown, shown_number, signed
from ablation.report.verdict_tables import (
    SHOWN_RATIOS,
    count_in_words,
    undefined_ratios,
)
from ablation.verdict.exact import exact
from ablation.verdict.model import ArmVerdict
from ablation.verdict.rules import STATED, RuleResult
from ablation.verdict.unread import Unread

COUNTS = {"truncated": "truncated", "looping": "looping", "truncated_or_looping": "either"}
CHANGED = {"logprob": "log-prob. change", "top20_entropy": "entropy change"}


def readouts(study: Study) -> Section:
    """The study's Table 1, a table for each family."""
    blocks: list[Block] = []
    for family in dict.fromkeys(one.family for one in study.verdict.arms):
        arms = [(place, one) for place, one in enumerate(study.verdict.arms) if one.family == family and one.figures is not None]
        if arms:
            blocks.append(_readouts(study, family, arms))
    if not blocks:
        return Section("readouts", "Readouts on the training cells", [text("No arm has a readout yet.")])
    said = (
        "After its last update every arm sampled all training cells again, with the seeds of the starting model's sweep, so that "
        "rollouts are compared one by one. A row is one readout; changes and ratios are against the sweep of the same family."
    )
    undefined = undefined_ratios(study.verdict.arms)
    blocks = [text(said), *blocks]
    if undefined:
        blocks.append(Items(tuple((line,) for line in undefined)))
    counts: list[Parts] = [(count_in_words(one),) for one in study.verdict.counts]
    if counts:
        blocks += [text("The source also reports:"), Items(tuple(counts))]
    return Section("readouts", "Readouts on the training cells", blocks)


def _readouts(study: Study, family: str, arms: Sequence[tuple[int, ArmVerdict]]) -> Table:
    sweep = study.verdict.sweeps.get(family)
    first = arms[0][1].figures
    sizes = [one.get("rollouts") for one in (sweep, first.subject if first else None) if one]
    of = f" {sizes[0]} rollouts a row." if sizes and sizes[0] else ""
    levels = {one.level for _, arm in arms if arm.figures for one in arm.figures.ratios.values() if one.level}
    interval = f" ({100 * max(levels):g}%\N{NO-BREAK SPACE}CI)" if levels else ""
    before = next((arm.figures.unread for _, arm in arms if arm.figures and arm.figures.unread), None)
    columns = [Column("arm", False), Column("clean"), Column("change"), *(Column(title) for title in COUNTS.values())]
    columns += [Column("unread")] if before else []
    columns += [Column(title) for title in CHANGED.values()]
    columns += [Column(f"tokens per correct{interval}"), Column(f"clean length{interval}"), Column("label", False)]
    rows: list[tuple[Cell, ...]] = []
    if sweep is not None:
        files, all_rows = [parts_of(f"{family}/{SWEEP}")], f"all {sweep.get('rollouts')} rows"

        def of_sweep(name: str) -> Cell:
            return num(shown(sweep.get(name)), study.traces.verdict([pointer("sweeps", family, name)], files, all_rows))

        blank = Cell("")
        unread = [_unread(study, f"{family}/{SWEEP}", before[1])] if before else []
        rows.append((Cell("start"), of_sweep("clean"), blank, *map(of_sweep, COUNTS), *unread, *[blank] * 5))
    rows += [_readout_row(study, place, arm) for place, arm in arms]
    methods = _methods(arms)
    said = ["unread: of the rollouts that ended by themselves, the share without an answer that can be read."] if before else []
    notes = [
        "start: the model before training, sampled in this family's seeds. either: truncated or looping.",
        "tokens per correct, clean length: ratios to the start.",
        *said,
        *(f"Intervals: {line}." for line in methods),
    ]
    caption = f"Readouts in family {family}.{of} Counts of rollouts; changes and ratios against the starting model."
    return Table(
        f"readouts-{family}", caption, tuple(columns), tuple(rows), tuple(notes), groups=(1,) if sweep is not None else ()
    )


def _methods(arms: Sequence[tuple[int, ArmVerdict]]) -> list[str]:
    """How the intervals were made, and over how many clusters."""
    clusters: dict[str, set[int]] = {}
    for _, arm in arms:
        for one in map(arm.figures.ratios.get, SHOWN_RATIOS) if arm.figures is not None else ():
            if one is not None and one.method is not None:
                clusters.setdefault(METHODS[one.method], set()).add(one.clusters)
    ends = {name: (min(found), max(found)) for name, found in clusters.items()}
    return [f"{name}, {low if low == high else f'{low} to {high}'} clusters" for name, (low, high) in ends.items()]


def _readout_row(study: Study, place: int, arm: ArmVerdict) -> tuple[Cell, ...]:
    label = Cell(study.verdict.shown_arm(arm), tone=tone_of(arm.label))
    return Cell(arm.arm), *readout_cells(study, place, arm).values(), label


def readout_cells(study: Study, place: int, arm: ArmVerdict) -> dict[str, Cell]:
    """The numbers of an arm's readout, in the order of the table. `place`: in `verdict.arms`."""
    figures, family = arm.figures, arm.family
    assert figures is not None
    own, other, given = figures.subject, figures.reference, figures.changes
    files, every = [parts_of(f"{arm.name}/readout")], f"all {own.get('rollouts')} rows"
    both = [*files, parts_of(f"{family}/{SWEEP}")]

    def count(name: str) -> Cell:
        trace = study.traces.verdict([pointer("arms", place, "measures", name)], files, every)
        return num(shown(own.get(name)), trace if own.get(name) is not None else None)

    def change(name: str, digits: int) -> Cell:
        value, places, how = _change(study, place, family, name, own, other, given)
        trace = study.traces.verdict(places, both, "each rollout beside its partner of the sweep", how)
        return num(signed(value, digits), trace if value is not None else None)

    def of_ratio(name: str) -> Cell:
        found = figures.ratios.get(name)
        trace = study.traces.verdict([pointer("arms", place, "ratios", name)], both, "by cell", "arm / sweep, with its interval")
        return num(ratio(found), trace if found is not None and found.value is not None else None)

    cells = {"clean": count("clean"), "clean_change": change("clean", 0)}
    cells |= {name: count(name) for name in COUNTS}
    cells |= {"unread": _unread(study, f"{arm.name}/readout", figures.unread[0])} if figures.unread else {}
    cells |= {f"{name}_change": change(name, 3) for name in CHANGED}
    return cells | {name: of_ratio(name) for name in SHOWN_RATIOS}


def _unread(study: Study, stage: str, one: Unread) -> Cell:
    trace = study.traces.verdict([pointer("unread", stage, "share")], [parts_of(stage)], f"the {one.ended} rows that ended")
    return num(one.shown, trace if one.share is not None else None)


def _change(
    study: Study, place: int, family: str, name: str, own: Mapping[str, Any], other: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[Fraction | None, list[str], str]:
    """(subject minus reference, where its numbers stand, how it is made of them)."""
    if own.get(name) is not None and other.get(name) is not None:
        second = pointer("sweeps", family, name)
        if family not in study.verdict.sweeps:  # of a measures file, which has the reference beside the arm
            return exact(own[name]) - exact(other[name]), [pointer("arms", place, "measures", name)], "minus the reference's"
        return exact(own[name]) - exact(other[name]), [pointer("arms", place, "measures", name), second], "first minus second"
    if given.get(name) is None:
        return None, [], ""
    return exact(given[name]), [pointer("arms", place, "changes", name)], ""


def drift(study: Study, figure: Figure | None) -> Section:
    """Figure 1: each arm against the control, update by update."""
    title = "Drift from update to update"
    if study.reported:
        return Section("drift", title, [text("The file has no figures of single updates, so drift cannot be shown.")])
    if figure is None:
        control = study.plan.verdict.replication.control
        why = f"No update of another arm can be set beside the same update of the control {control} yet."
        return Section("drift", title, [text(why)])
    control = study.plan.verdict.replication.control
    said = (
        "Within a family all arms see the same cells at every update, and before the first update the same rollouts. So each arm "
        f"is set beside the control {control}, cell by cell: what is left is what the arm itself did. A point below zero in the "
        f"panels of log-probability means that the arm is less sure of its own tokens than {control}; one above zero in those of "
        "entropy, that it spreads its next tokens wider."
    )
    return Section("drift", title, [text(said), figure])


def drift_table(study: Study, points: Sequence[Point]) -> Table:
    """The data behind the figure of drift."""
    level = f"{100 * study.plan.statistics.level:g}% CI"
    rows: list[tuple[Cell, ...]] = []
    groups: list[int] = []
    before = None
    for place, one in enumerate(points):
        if before != (one.family, one.arm):
            groups.append(len(rows))
        name = f"{one.family}/{one.arm} minus {one.control}"
        files = [parts_of(f"{one.family}/{arm}/{one.stage}") for arm in (one.arm, one.control)]
        cells = []
        for measure in ("logprob", "top20_entropy"):
            found = one.estimates.get(measure)
            if found is None or found.value is None:
                cells.append(num(NOTHING))
                continue
            value = with_sign(found.value, 4)
            if found.low is not None and found.high is not None:
                value += f" ({with_sign(found.low, 4)} to {with_sign(found.high, 4)})"
            at = pointer("curves", place, measure)
            rows_of = f"{one.rollouts} rows each, by cell"
            cells.append(num(value, study.traces.report(at, files, rows_of, "arm minus control, with its interval")))
        stage = "readout" if one.stage == READOUT else one.stage.replace("-", " ")
        rows.append((Cell(name if before != (one.family, one.arm) else ""), Cell(stage), num(str(one.rollouts)), *cells))
        before = (one.family, one.arm)
    columns = (
        Column("runs", False),
        Column("stage", False),
        Column("rollouts each"),
        Column(f"log-probability, nats per token ({level})"),
        Column(f"top-20 entropy, nats ({level})"),
    )
    caption = "Each arm minus the control, paired by cell: the numbers behind the figure."
    note = "Without an interval: too few cells for one, or none of them differs (at update 1 the rollouts are the same)."
    return Table("drift", caption, columns, tuple(rows), (note,), tuple(groups), latex=False)


def damage(study: Study) -> Section:
    """Every rule with its number and its limit."""
    judged = [(place, one) for place, one in enumerate(study.verdict.arms) if one.rules]
    title = "Damage rules"
    if not judged:
        return Section("damage", title, [text("No readout was judged yet.")])
    words = dict.fromkeys((one.rule.name, one.words) for _, arm in judged for one in arm.rules)
    rows: list[tuple[Cell, ...]] = []
    groups = []
    for place, arm in judged:
        groups.append(len(rows))
        files = [parts_of(f"{arm.name}/readout"), parts_of(f"{arm.family}/{SWEEP}")]
        for number, one in enumerate(arm.rules):
            trace = study.traces.verdict([pointer("arms", place, "rules", number, "value")], files, "all rows of both")
            label = Cell(study.verdict.shown_arm(arm), tone=tone_of(arm.label)) if number == 0 else Cell("")
            rows.append((Cell(arm.name if number == 0 else ""), *rule_cells(one, trace, ("fired", "not fired")), label))
    stated = any(one.how == STATED for _, arm in judged for one in arm.rules)
    notes = [f"* {STATED}"] if stated else []
    notes += how_computed([(arm.name, arm.rules) for _, arm in judged])
    columns = (Column("run", False), Column("rule", False), Column("number"), Column("limit"), Column("result", False))
    table = Table(
        "damage",
        "Every damage rule with its number and its limit. One that fires makes the run damaged; none, stable.",
        (*columns, Column("label", False)),
        tuple(rows),
        tuple(notes),
        tuple(groups),
    )
    blocks: list[Block] = [
        text("The plan called a run damaged if, against the sweep of its family, any one of these holds:"),
        Facts(tuple((name, (said,)) for name, said in words)),
        table,
    ]
    unreachable = study.verdict.cannot_fire()
    blocks += [text(f"{one['family']}: {one['rule']} cannot fire: {one['why']}.", kind="warning") for one in unreachable]
    return Section("damage", title, blocks)


def rule_cells(one: RuleResult, trace: Any, words: tuple[str, str]) -> tuple[Cell, ...]:
    """Rule, number, limit and result; `words`: for one that holds, and for one that does not."""
    word = {True: words[0], False: words[1], None: "undecided"}[one.holds]
    fired = words[0] == "fired"
    tones: dict[bool | None, Tone] = {True: "bad" if fired else "good", False: "good" if fired else "bad", None: "open"}
    tone = tones[one.holds]
    why = "*" if one.how == STATED else f": {one.reason}" if one.holds is None else ""
    value = num(shown_number(one), trace if one.value is not None else None)
    limit = num(f"{one.rule.op} {limit_words(one.rule.limit)}")
    return Cell(one.rule.name), value, limit, Cell(f"{word}{why}".replace("`", ""), tone=tone)
