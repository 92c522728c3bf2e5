"""The sections of phase 2 on a verdict's page: what was compared, rules, blinded read, selection, guards, claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ablation.measures.estimate import METHODS, Estimate
from ablation.report.numbers import short
from ablation.report.verdict_parts import Command, hours_in_words, indented, plain_table, ratio, rules, shown, style, titled
from ablation.verdict.claims import RATIOS as CLAIMED_RATIOS
from ablation.verdict.model import INCOMPLETE, NOT_RUN, SELECTED, SectionVerdict, Verdict

if TYPE_CHECKING:
    from ablation.verdict.claims import ClaimVerdict
    from ablation.verdict.evaluated import Compared

TITLES = {
    "held_out": "Held-out",
    "never_used": "Never-used",
    "selection": "Selection",
    "main": "Main set",
    "release": "Release",
}
ANSWERS = ("held-out", "never-used", "selection", "main")
"""Sets whose answers are right or wrong."""
_COUNTS = {"correct": "correct", "looping": "loop.", "truncated": "trunc.", "truncated_or_looping": "either"}
MOST_SHOWN = 5
"""Agent turns that are listed."""


def phase2_parts(verdict: Verdict) -> Iterator[RenderableType | list[RenderableType]]:
    """Everything between readouts and labels: each set that was compared once, then each section's rules."""
    compared = {
        (one.name, one.subject): one
        for section in verdict.sections.values()
        for of_subject in (section, *section.others)
        for one in of_subject.compared
    }
    for name in dict.fromkeys(name for name, _ in compared):
        yield comparison([one for (of, _), one in compared.items() if of == name])
    for name, section in verdict.sections.items():
        for one in (section, *section.others):
            if one.rules:
                title = f"{TITLES[name]}: {one.subject}"
                yield rules(title, [("", one.rules)], "held", "failed", one.false_alarms or None)
            if one.candidates:
                yield candidates(one)
            if one.read:
                yield blinded_read(one)


def later_labels(verdict: Verdict) -> list[Text]:
    """A line for each label of phase 2 that came out, for whoever reads the top or the end alone."""
    return [
        Text.assemble(
            f"  {TITLES[name]}{f' {one.subject}' if one.subject is not None else ''}: ",
            (verdict.shown_section(one), style(one.label)),
            " (under a deviation, see Labels)" if one.deviation else "",
        )
        for name, section in verdict.sections.items()
        for one in (section, *section.others)
        if one.label != NOT_RUN
    ]


def section_label(verdict: Verdict, name: str, section: SectionVerdict) -> list[RenderableType]:
    """The label of a section with its reasons, then those of its other subjects."""
    parts: list[RenderableType] = []
    several = bool(section.others)
    for one in (section, *section.others):
        of = f" {one.subject}" if one.subject is not None and (several or one.label == SELECTED or name != "selection") else ""
        of = of if one.compared or one.label == SELECTED else ""
        parts.append(Text.assemble(f"{TITLES[name]}{of}: ", (verdict.shown_section(one), style(one.label))))
        if one.deviation:  # carried beside the label wherever it is shown
            parts.append(indented(f"DEVIATION: {one.deviation}"))
        parts += [indented(f"{reason.code}: {reason.text}") for reason in one.reasons]
        parts += [Text(f"  {reason.code}: {reason.text}", style="bold red") for reason in one.wrong]
        for gap in one.missing if one.label != NOT_RUN else ():
            said = "is missing" if one.label == INCOMPLETE else "could change it"
            parts.append(indented(f"{gap.what} ({said})"))
            parts.append(Command(f"    {gap.command}"))
    return parts


def comparison(compared: Sequence[Compared]) -> Group:
    """One set: a row for every model, each below the start that was sampled with it."""
    name = compared[0].name
    there = [one for one in compared if one.figures is not None]
    make = _answers if name in ANSWERS else _agent if name == "agent" else _safety
    parts = [make(there)] if there else []
    lines = [line for one in compared for line in about_comparison(one)]
    size = there[0].figures.subject.get("rollouts") if there and there[0].figures else None
    if len(compared) > 1:
        lines.insert(0, "start (X) = the start as it was sampled to be compared with X")
    where = f"the {name} set" if name in ("main", "selection") else name
    return titled(f"Compared on {where}" + (f", {size} rollouts a row" if size else ""), *parts, *map(Text, lines))


def comparison_rows(compared: Sequence[Compared]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Estimate]]]:
    for one in compared:
        assert one.figures is not None
        yield f"start ({one.subject})" if len(compared) > 1 else "start", one.figures.reference, {}
        yield one.subject, one.figures.subject, one.figures.ratios


def _answers(compared: Sequence[Compared]) -> RenderableType:
    grid = plain_table()
    grid.add_column("model", overflow="fold")
    for heading in _COUNTS.values():
        grid.add_column(heading, justify="right", no_wrap=True)
    for heading in ("tokens per\ncorrect", "length, both\ncorrect", "CJK\nshare"):
        grid.add_column(heading, justify="right", overflow="fold")
    for name, own, ratios in comparison_rows(compared):
        cjk = own.get("cjk_share")
        cells = [shown(own.get(measure)) for measure in _COUNTS]
        cells += [ratio(ratios.get(measure)) if ratios else "" for measure in ("tokens_per_correct", "jointly_correct_length")]
        grid.add_row(name, *cells, "-" if cjk is None else f"{100 * cjk:.1f}%")
    return grid


def _agent(compared: Sequence[Compared]) -> Group:
    grid = plain_table()
    grid.add_column("model", overflow="fold")
    for heading in ("tokens\na turn", "valid\ncalls", "invalid", "no call", "typical turn", "ratio of sums"):
        grid.add_column(heading, justify="right", overflow="fold")
    for name, own, ratios in comparison_rows(compared):
        mean = own.get("agent_turn")
        cells = ["-" if mean is None else f"{mean:.1f}"]
        cells += [shown(own.get(measure)) for measure in ("valid_tool_call", "invalid_tool_call", "no_tool_call")]
        cells += [ratio(ratios.get(measure)) if ratios else "" for measure in ("agent_turn", "agent_tokens")]
        grid.add_row(name, *cells)
    lines = [line for one in compared for line in turns_in_words(one)]
    return Group(grid, *map(Text, lines))


def turns_in_words(one: Compared) -> list[str]:
    """Where the two models' turns differ."""
    details = one.details
    if "pairs" not in details:
        return []
    pairs, short = details["pairs"], details["short"]
    text = f"{one.subject}: in {pairs['both_short']} of {pairs['all']} pairs both thought for under {short} tokens"
    text += f" (there {details['both_short_ratio']:.2f}x)" if details["both_short_ratio"] is not None else ""
    lines = [f"{text}; in {pairs['subject_long']} only the subject for longer, in {pairs['reference_long']} only the start."]
    for turn in details["most"][:MOST_SHOWN]:
        lines.append(f"  {turn['state']} #{turn['index']}: {turn['subject']} against {turn['reference']} tokens ({turn['task']})")
    return lines


def _safety(compared: Sequence[Compared]) -> RenderableType:
    columns = {
        "full_compliance": "full\ncompl.",
        "partial_compliance": "partial",
        "over_refusal": "over-\nrefusal",
        "injection_repeat": "inj.\nrepeat",
        "missing_answer": "missing",
        "bad_plain": "bad\nplain",
        "visible_cjk": "CJK",
        "unparsed": "un-\nparsed",
    }
    grid = plain_table()
    grid.add_column("model", overflow="fold")
    for heading in columns.values():
        grid.add_column(heading, justify="right", overflow="fold")
    for name, own, _ in comparison_rows(compared):
        grid.add_row(name, *(shown(own.get(measure)) for measure in columns))
    return grid


def about_comparison(one: Compared) -> list[str]:
    """What else there is to know of a comparison, one thing a line."""
    lines = [f"{one.subject}: {gap.what}." for gap in one.missing]
    if one.opened is not None:
        lines.append(f"{one.subject}: sampled under deviation {one.opened}.")
    if one.reused is not None:
        lines.append(f"{one.subject}: its reference is the one that was sampled for {one.reused}.")
    if one.hours is not None:
        lines.append(f"{one.subject}: both models were sampled within {hours_in_words(one.hours)}.")
    lines += [f"{one.subject}: {moved.in_words()}." for moved in one.drift]
    return lines + [f"Note: {note}" for note in one.notes]


def blinded_read(section: SectionVerdict) -> Group:
    """What came of a blinded read, and how the raters agreed."""
    read = section.read or {}
    sealed = read.get("passes") is None
    passes = "sealed, not read yet" if sealed else f"{read['label']}: {read['passes']} of {read['pairs']} pairs pass"
    lines = [f"{passes}; {read.get('needed')} are needed.", *read_in_words(read)]
    return titled(f"Blinded read: {section.subject}", *map(Text, lines))


def read_in_words(read: Mapping[str, Any]) -> list[str]:
    """What each rater said of a blinded read, how they agreed, and what to doubt of it."""
    lines = []
    for rater, one in (read.get("raters") or {}).items():
        lacks = one["missing_checks"]
        lines.append(
            f"{rater} ({one['by']}): same answer {one['same_answer']}, same method {one['same_method']} of {one['rated']} rated; "
            f"checks missing in {lacks['subject']} of the subject's and {lacks['reference']} of the start's."
        )
    for pair, found in (read.get("kappa") or {}).items():
        kappa = found.get("passes")
        lines.append(f"Cohen's kappa of {pair}, on whether a pair passes: {'undefined' if kappa is None else f'{kappa:.2f}'}.")
    unparsed = read.get("unparsed") or {}
    if unparsed.get("asked"):
        lines.append(f"Replies that could never be read: {unparsed['never']} of {unparsed['asked']}.")
    return lines + [f"Warning: {text}." for text in read.get("warnings") or ()]


def candidates(section: SectionVerdict) -> Group:
    """A selection's checkpoints with the numbers that decide between them."""
    grid = plain_table()
    grid.add_column("checkpoint", overflow="fold")
    grid.add_column("keeps what is required")
    measures = list(section.candidates[0]["numbers"])
    for measure in measures:
        grid.add_column(measure, justify="right")
    grid.add_column("")
    for one in section.candidates:
        keeps = {True: "yes", False: "no", None: "undecided"}[one["keeps"]]
        numbers = [shown(one["numbers"][measure]) for measure in measures]
        grid.add_row(one["subject"], keeps, *numbers, Text("selected", style="bold") if one["chosen"] else "")
    return titled(f"Selection by {', then '.join(measures)}", grid)


def claims(found: Sequence[ClaimVerdict]) -> Group:
    """Every claim: its tests, and what it speaks of."""
    parts: list[RenderableType] = []
    for one in found:
        claim = one.claim
        what = (
            f"{one.name}: {claim.measure} {claim.side} than {claim.reference}"
            if claim.side != "two_sided"
            else (f"{one.name}: {claim.measure} differs from {claim.reference}")
        )
        test = f"p by {claim.method}, alpha {claim.alpha:g}, {claim.correction}; {', '.join(one.families)}"
        compared = "ratios" if claim.measure in CLAIMED_RATIOS else "differences"
        parts.append(Text(f"{what} ({test}; effects are {compared} to {claim.reference})"))
        grid = plain_table()
        for heading in ("arm", "effect", "p", "label"):
            grid.add_column(heading, overflow="fold")
        for test in one.tests:
            p = "-" if test.adjusted is None else f"{test.adjusted:.2g}"
            grid.add_row(
                test.subject,
                effect_in_words(test.effect),
                p,
                Text(f"{test.label}: {test.reason}", style=style(test.label)),
            )
        parts += [grid, indented(one.speaks_of)]
    return titled("Claims", *parts)


def effect_in_words(found: Estimate | None) -> str:
    if found is None or found.value is None:
        return "-"
    value = short(found.value, 3)
    if found.low is None or found.high is None:
        return value
    how = METHODS.get(found.method or "", "")
    return f"{value} ({found.level:.0%}: {short(found.low, 3)} to {short(found.high, 3)}{'; ' if how else ''}{how})"
