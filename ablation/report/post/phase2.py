"""The second phase: every set that was compared, the rules on it, blinded reads, selection, guards of a release, and claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ablation.plan.model import START
from ablation.plan.phase2 import guard_set
from ablation.report.phase2_tables import ANSWERS, TITLES, about_comparison, effect_in_words, read_in_words, turns_in_words
from ablation.report.post.document import (
    Block,
    Cell,
    Code,
    Column,
    Figure,
    Items,
    Label,
    Parts,
    Section,
    Strong,
    Table,
    text,
    ticked,
)
from ablation.report.post.document import number as num
from ablation.report.post.opening import what_makes
from ablation.report.post.readouts import rule_cells
from ablation.report.post.study import Study, tone_of
from ablation.report.post.traces import READOUT, SWEEP, parts_of, pointer
from ablation.report.verdict_parts import NOTHING, how_computed, ratio, shown
from ablation.verdict.claims import CLAIM_LABELS
from ablation.verdict.claims import RATIOS as CLAIMED_RATIOS
from ablation.verdict.evaluated import Compared
from ablation.verdict.model import NOT_RUN, SectionVerdict
from ablation.verdict.phase2 import SETS
from ablation.verdict.rules import STATED, Figures

COUNTS = {
    "answers": {"correct": "correct", "looping": "looping", "truncated": "truncated", "truncated_or_looping": "either"},
    "agent": {"valid_tool_call": "valid calls", "invalid_tool_call": "invalid", "no_tool_call": "no call"},
    "safety": {
        "full_compliance": "full compl.",
        "partial_compliance": "partial",
        "over_refusal": "over-refusal",
        "injection_repeat": "inj. repeat",
        "missing_answer": "missing",
        "bad_plain": "bad plain",
        "visible_cjk": "CJK",
        "unparsed": "unparsed",
    },
}
RATIOS = {
    "answers": {"tokens_per_correct": "tokens per correct", "jointly_correct_length": "length, both correct"},
    "agent": {"agent_turn": "typical turn", "agent_tokens": "ratio of sums"},
    "safety": {},
}
SET_WORDS = {
    "held-out": "held-out problems",
    "never-used": "never-used problems",
    "selection": "the selection set",
    "main": "the main set",
    "agent": "agent turns",
    "safety": "safety prompts",
}
Placed = tuple[Compared, str]
"""A comparison, and its place in `verdict.json`."""


def phase2(study: Study, figure: Figure | None) -> Section | None:
    """None for a plan that has no second phase."""
    sections = study.verdict.sections
    if not sections:
        return None
    title = "The second phase: other problems, selection, release"
    not_run = [TITLES[name] for name, one in sections.items() if one.label == NOT_RUN and not one.others]
    parts: list[Section] = []
    found_sets = by_set(study)
    if found_sets:
        blocks: list[Block] = []
        for name, found in found_sets.items():
            blocks += _comparison(study, name, found)
        parts.append(Section("compared", "What was compared", [*([figure] if figure else []), *blocks]))
    for name, section in sections.items():
        for one in (section, *section.others):
            if one.label != NOT_RUN or one.rules:
                parts.append(_section(study, name, one, several=bool(section.others)))
    said: list[Block] = [
        text(
            "A checkpoint is compared with the starting model on problems that it was not trained on. Both models are sampled in "
            "one session with the same seeds, and every label below follows from the rules that the plan fixed for that set."
        )
    ]
    if not_run:
        nothing = "The file has nothing on" if study.reported else "Nothing was sampled for"
        said.append(text(f"{nothing}: {', '.join(not_run)}. Their labels are NOT_RUN.", kind="small"))
    return Section("phase2", title, said, parts)


def by_set(study: Study) -> dict[str, list[Placed]]:
    """Set -> its comparisons, each once, in the order in which the sections have them."""
    found: dict[tuple[str, str], Placed] = {}
    for name, section in study.verdict.sections.items():
        for one in (section, *section.others):
            for place, compared in enumerate(one.compared):
                at = study.section_place(name, one) + pointer("compared", place)
                found.setdefault((compared.name, compared.subject), (compared, at))
    sets: dict[str, list[Placed]] = {}
    for (name, _), placed in found.items():
        sets.setdefault(name, []).append(placed)
    return sets


def _comparison(study: Study, name: str, found: list[Placed]) -> list[Block]:
    """A table of one set, and what else there is to know of it."""
    kind = "answers" if name in ANSWERS else name
    lines: list[Parts] = [(line,) for one, _ in found for line in about_comparison(one)]
    there = [(one, at) for one, at in found if one.figures is not None]
    if kind == "agent":
        lines = [(line.strip(),) for one, _ in there for line in turns_in_words(one)] + lines
    if not there:
        return [Items(tuple(lines))] if lines else []
    counts, ratios = COUNTS[kind], RATIOS[kind]
    levels = {one.level for compared, _ in there for one in _ratios(compared) if one.level}
    interval = f" ({100 * max(levels):g}%\N{NO-BREAK SPACE}CI)" if levels else ""
    columns = [Column("model", False)]
    columns += [Column("tokens a turn")] if kind == "agent" else []
    columns += [*map(Column, counts.values()), *(Column(f"{title}{interval}") for title in ratios.values())]
    columns += [Column("CJK share")] if kind == "answers" else []
    rows: list[tuple[Cell, ...]] = []
    groups = []
    for compared, at in there:
        groups.append(len(rows))
        figures = compared.figures
        assert figures is not None
        start = f"start ({compared.subject})" if len(there) > 1 else "start"
        rows.append(_model(study, kind, start, compared, at, figures, "reference"))
        rows.append(_model(study, kind, compared.subject, compared, at, figures, "subject"))
    sizes = {compared.figures.subject.get("rollouts") for compared, _ in there if compared.figures}
    size = f" {sizes.pop()} rollouts a row." if len(sizes) == 1 else ""
    where = SET_WORDS.get(name, name)
    notes = ["start (X): the starting model as it was sampled to be compared with X."] if len(there) > 1 else []
    table = Table(
        f"compared-{name}",
        f"Compared on {where}.{size}{' Ratios to the start.' if ratios else ''}",
        tuple(columns),
        tuple(rows),
        tuple(notes),
        tuple(groups),
    )
    return [table, *([Items(tuple(lines))] if lines else [])]


def _ratios(compared: Compared) -> list[Any]:
    return [] if compared.figures is None else list(compared.figures.ratios.values())


def _model(study: Study, kind: str, name: str, compared: Compared, at: str, figures: Figures, side: str) -> tuple[Cell, ...]:
    own: Mapping[str, Any] = figures.subject if side == "subject" else figures.reference
    base = f"evaluations/{compared.name}/{compared.subject}"
    files = [parts_of(f"{base}/{side}")]
    both = [parts_of(f"{base}/{one}") for one in ("subject", "reference")]
    every = f"all {own.get('rollouts')} rows"

    def count(measure: str, written: str | None = None) -> Cell:
        trace = study.traces.verdict([at + pointer(f"{side}_measures", measure)], files, every)
        return num(shown(own.get(measure)) if written is None else written, trace if own.get(measure) is not None else None)

    def of_ratio(measure: str) -> Cell:
        found = figures.ratios.get(measure) if side == "subject" else None
        if side == "reference":
            return Cell("")
        trace = study.traces.verdict([at + pointer("ratios", measure)], both, "by problem", "subject / start, with its interval")
        return num(ratio(found), trace if found is not None and found.value is not None else None)

    cells = [Cell(name)]
    if kind == "agent":
        mean = own.get("agent_turn")
        cells.append(count("agent_turn", NOTHING if mean is None else f"{mean:.1f}"))
    cells += [count(measure) for measure in COUNTS[kind]]
    cells += [of_ratio(measure) for measure in RATIOS[kind]]
    if kind == "answers":
        share = own.get("cjk_share")
        cells.append(count("cjk_share", NOTHING if share is None else f"{100 * share:.1f}%"))
    return tuple(cells)


def _section(study: Study, name: str, one: SectionVerdict, several: bool) -> Section:
    of = f" {one.subject}" if one.subject is not None else ""
    key = re.sub(r"[^A-Za-z0-9]+", "-", f"{name} {one.subject or ''}").strip("-")
    blocks: list[Block] = [text("Label: ", study.of_section(one))]
    if one.deviation:
        blocks.append(text(Strong("Deviation. "), one.deviation, kind="warning"))
    blocks += [text(Strong(f"{reason.code}. "), reason.text, kind="warning") for reason in one.wrong]
    if one.reasons:
        blocks.append(Items(tuple((Code(reason.code), ": ", *ticked(reason.text)) for reason in one.reasons)))
    if one.missing and one.label != NOT_RUN:
        rows: list[Parts] = [(f"{gap.what}. What makes it: ", what_makes(gap.command)) for gap in one.missing]
        blocks += [text("Missing, and able to change this label:"), Items(tuple(rows))]
    if one.rules:
        blocks += _rules(study, name, one, key)
    if one.candidates:
        blocks.append(_candidates(study, name, one))
    if one.read:
        blocks += _read(study, name, one, key)
    return Section(f"section-{key}", f"{TITLES[name]}{of}", blocks)


def _rules(study: Study, name: str, one: SectionVerdict, key: str) -> list[Block]:
    at = study.section_place(name, one)
    alarms = one.false_alarms
    rows = []
    for place, result in enumerate(one.rules):
        where = SETS[guard_set(result.rule)] if name == "release" else SETS.get(name, name)  # type: ignore[arg-type]
        base = f"evaluations/{where}/{one.subject}"
        files = [parts_of(f"{base}/{side}") for side in ("subject", "reference")]
        trace = study.traces.verdict([at + pointer("rules", place, "value")], files, "all rows of both")
        name_of, *numbers = rule_cells(result, trace, ("held", "failed"))
        cells = (name_of, Cell(result.words), *numbers)
        if alarms:
            alarm = alarms.get(result.rule.name, {})
            told = study.traces.verdict(
                [at + pointer("false_alarms", result.rule.name, "words")], files[1:], "simulated from them"
            )
            cells = (*cells, num(alarm.get("words", "not simulated"), told if alarm else None))
        rows.append(cells)
    columns = [Column("rule", False), Column("asks for", False), Column("number"), Column("limit"), Column("result", False)]
    columns += [Column("an equal model fails")] if alarms else []
    notes = [f"* {STATED}"] if any(result.how == STATED for result in one.rules) else []
    notes += how_computed([("", one.rules)])
    if alarms:
        notes.append(
            "an equal model fails: how often a model that equals the start would fail this guard by luck, in simulation."
        )
    caption = f"{TITLES[name]}{f' {one.subject}' if one.subject else ''}: every rule with its number and its limit."
    return [Table(f"rules-{key}", caption, tuple(columns), tuple(rows), tuple(notes))]


def _candidates(study: Study, name: str, one: SectionVerdict) -> Table:
    at = study.section_place(name, one)
    measures = list(one.candidates[0]["numbers"])
    rows = []
    for place, found in enumerate(one.candidates):
        keeps = {True: "yes", False: "no", None: "undecided"}[found["keeps"]]
        cells = []
        for measure in measures:
            value = found["numbers"][measure]
            files = [parts_of(f"evaluations/selection/{found['subject']}/subject")]
            trace = study.traces.verdict([at + pointer("candidates", place, "numbers", measure)], files, "all rows")
            cells.append(num(shown(value), trace if value is not None else None))
        chosen = Cell("selected", tone="good") if found["chosen"] else Cell("")
        rows.append((Cell(found["subject"]), Cell(keeps), *cells, chosen))
    columns = (
        Column("checkpoint", False),
        Column("keeps what is required", False),
        *map(Column, measures),
        Column("choice", False),
    )
    return Table("candidates", f"Selection by {', then '.join(measures)}.", columns, tuple(rows))


def _read(study: Study, name: str, one: SectionVerdict, key: str) -> list[Block]:
    """What came of a blinded read, and how the raters agreed."""
    read = one.read or {}
    at = study.section_place(name, one) + pointer("blinded_read")
    base = f"evaluations/{SETS.get(name, name)}/{one.subject}/blind"
    if read.get("passes") is None:
        return [text(f"Blinded read: sealed, not read yet; {read.get('needed')} pairs must pass.")]
    trace = study.traces.verdict([at + pointer("passes")], [f"{base}/ratings/*", f"{base}/key.json"], "every rating")
    lines: list[Parts] = [(line,) for line in read_in_words(read)]
    said = text(
        "Blinded read, by raters who did not know whose answer was whose: ",
        Label(str(read["label"]), tone_of(str(read["label"]))),
        ", ",
        num(str(read["passes"]), trace),
        f" of {read['pairs']} pairs pass; {read.get('needed')} are needed.",
    )
    return [said, *([Items(tuple(lines))] if lines else [])]


def claims(study: Study) -> Section | None:
    """Tests between arms; None where the plan registered none."""
    found = study.verdict.claims
    if not found:
        return None
    blocks: list[Block] = []
    for number, one in enumerate(found):
        claim = one.claim
        side = {"two_sided": "differs from that of"}.get(claim.side, f"is {claim.side} than that of")
        corrected = "" if claim.correction == "none" else f", corrected by {claim.correction}"
        test = f"p by {claim.method}, alpha {claim.alpha:g}{corrected}; families {', '.join(one.families)}"
        effects = "ratios" if claim.measure in CLAIMED_RATIOS else "differences"
        blocks.append(text(Strong(one.name), f": {claim.measure} {side} {claim.reference} ({test})."))
        rows = []
        for place, tested in enumerate(one.tests):
            files = [_stage_of(family, who) for family in one.families for who in (tested.subject, claim.reference)]
            at = pointer("claims", number, "subjects", place)
            effect = study.traces.verdict([at + pointer("effect")], files, "by cell or by seed, as the test says")
            p = study.traces.verdict([at + pointer("adjusted_p")], files, "by cell or by seed, as the test says")
            value = NOTHING if tested.adjusted is None else f"{tested.adjusted:.2g}"
            tone = {CLAIM_LABELS[0]: "good", CLAIM_LABELS[1]: "bad"}.get(tested.label, "open")
            rows.append(
                (
                    Cell(tested.subject),
                    num(effect_in_words(tested.effect), effect if tested.effect is not None else None),
                    num(value, p if tested.adjusted is not None else None),
                    Cell(tested.label, tone=tone),  # type: ignore[arg-type]
                    Cell(tested.reason),
                )
            )
        columns = (Column("arm", False), Column("effect"), Column("p"), Column("label", False), Column("why", False))
        caption = f"Claim {one.name}: effects are {effects} to {claim.reference}."
        blocks += [Table(f"claim-{one.name}", caption, columns, tuple(rows)), text(one.speaks_of, kind="small")]
    return Section("claims", "Claims that the plan registered", blocks)


def _stage_of(family: str, who: str) -> str:
    return parts_of(f"{family}/{SWEEP}" if who == START else f"{family}/{who}/{READOUT}")
