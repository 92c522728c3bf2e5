"""A verdict as tables and sentences for a terminal of 80 columns: the headline, what is behind it, the label once more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablation.measures.bootstrap import REASONS
from ablation.plan.external import external_sentence
from ablation.plan.judging import REPLICATION_REASONS
from ablation.plan.model import Plan
from ablation.plan.tables import STUDY
from ablation.report.arm_words import arm_in_words
from ablation.report.numbers import percent_range, with_sign
from ablation.report.phase2_tables import claims, later_labels, phase2_parts, section_label
from ablation.report.phase2_words import table_words
from ablation.report.terminal import Page, clean
from ablation.report.verdict_parts import NOTHING, Command, indented, plain_table, ratio, rules, shown, signed, style, titled
from ablation.verdict import model
from ablation.verdict.exact import exact
from ablation.verdict.labels import merged
from ablation.verdict.model import ArmVerdict, Verdict
from ablation.verdict.steps import STEPPED

SHOWN_RATIOS = ("tokens_per_correct", "clean_length")
READOUT_LEGEND = (
    "start = the model before training; change = against start\n"
    "either = truncated or looping; the last two columns are ratios to start"
)
UNREAD_LEGEND = "\nunread = of those that ended by themselves, the share without an answer that can be read"
AUDIT_LEGEND = "net = sum of the weights / sum of the absolute weights"


def print_verdict(verdict: Verdict, plan: Plan, console: Console) -> None:
    """The headline first, then everything that a reader needs to check it. `plan`: the one that the verdict is of."""
    for part in render(verdict, plan):
        for piece in part if isinstance(part, list) else [part]:
            if isinstance(piece, Command):
                console.print(Text(clean(str(piece))), soft_wrap=True)
            else:
                console.print(Page(piece), end="")
        console.print()
    for line in [label_line(verdict), *later_labels(verdict)]:
        console.print(Page(line), end="")


def render(verdict: Verdict, plan: Plan) -> Iterator[RenderableType | list[RenderableType]]:
    """The parts of the page, top to bottom; a list is one part in pieces."""
    yield headline(verdict, plan)
    yield arms_in_words(plan)
    if verdict.missing:
        yield missing(verdict)
    for family in dict.fromkeys(one.family for one in verdict.arms):
        arms = [one for one in verdict.arms if one.family == family and one.figures is not None]
        if arms:
            yield readouts(family, verdict.sweeps.get(family), arms)
    if any(one.figures is not None for one in verdict.arms):
        yield Text(READOUT_LEGEND + (UNREAD_LEGEND if verdict.unread else ""))
    undefined = undefined_ratios(verdict.arms)
    if undefined:
        yield Text("\n".join(undefined))
    if any(one.rules for one in verdict.arms):
        yield rules("Damage rules", [(one.name, one.rules) for one in verdict.arms if one.rules], "fired", "not fired")
    unreachable = verdict.cannot_fire()
    if unreachable:
        yield Text("\n".join(f"{one['family']}: {one['rule']} cannot fire: {one['why']}." for one in unreachable), style="bold")
    stops = [one for one in verdict.arms if one.stopped]
    if stops:
        yield Text("\n".join(stop_in_words(one) for one in stops))
    elif verdict.source == model.FROM_ROLLOUTS and verdict.arms:
        elsewhere = [one.name for one in verdict.arms if one.marks]
        if len(elsewhere) < len(verdict.arms):
            yield Text("Stop rules: none fired in the runs above." if not elsewhere else "Stop rules: none fired here.")
        if elsewhere:
            yield Text(f"Imported, so no stop rule was watched and no update audited by this program: {', '.join(elsewhere)}.")
    weighed = audit_rows(verdict)
    if weighed:
        yield audits(weighed)
    yield from phase2_parts(verdict)
    if verdict.claims:
        yield claims(verdict.claims)
    if verdict.counts:
        yield Text("\n".join(count_in_words(one) for one in verdict.counts))
    if verdict.arms or verdict.sections or verdict.journal is not None:
        yield labels(verdict)
    if verdict.notes:
        yield Text("\n".join(f"Note: {note}" for note in verdict.notes))
    yield Text(f"What this does not prove: {verdict.unit_of_claim}")


def label_line(verdict: Verdict) -> Text:
    source = "computed from rollouts" if verdict.source == model.FROM_ROLLOUTS else verdict.source
    source = "computed from imported rollouts" if verdict.imported else source
    return Text.assemble("Verdict: ", (verdict.shown(verdict.label), style(verdict.label)), f"  ({source})")


def headline(verdict: Verdict, plan: Plan) -> Group:
    """What was asked, the label, what it means and why it came out."""
    parts: list[RenderableType] = [Text.assemble((f"{verdict.plan}: ", "bold"), plan.question), Text(f"Digest: {verdict.digest}")]
    if verdict.reported_by:
        parts.append(Text(f"Source: {verdict.reported_by}"))
    parts += [Text(), label_line(verdict), indented(meaning(verdict, plan))]
    parts += [indented(f"{reason.code}: {reason.text}") for reason in merged(verdict.reasons)]
    parts += later_labels(verdict)
    parts += [Text(line, style="bold red") for line in without_step(verdict, plan)]
    parts += [Text(line) for line in verdict.beside()]
    outside = external_sentence(plan)
    parts += [Text(outside)] if outside is not None else []
    return Group(*parts)


def without_step(verdict: Verdict, plan: Plan) -> list[str]:
    """A line for all arms of a family in which equally many updates took no step, for the same reasons."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for one, found in verdict.steps.items():
        if found["stepped"] < found["updates"]:
            family, arm = one.split("/")
            whole = not found["stepped"] and found["updates"] == plan.training.updates
            read = whole and any(other.name == one and other.figures is not None for other in verdict.arms)
            others = tuple((name, count) for name, count in found["outcomes"].items() if name != STEPPED)
            alike.setdefault((family, found["stepped"], found["updates"], others, read), []).append(arm)
    lines = []
    for (family, stepped, updates, others, read), arms in alike.items():
        why = others[0][0] if len(others) == 1 else ", ".join(f"{count} {name}" for name, count in others)
        line = (
            f"{', '.join(arms)}: {stepped} of {updates} updates in {family} took a step ({'the rest: ' if stepped else ''}{why})"
        )
        of = "its readout is" if len(arms) == 1 else "their readouts are"
        lines.append(f"{line}: {of} of the unchanged start." if read else f"{line}.")
    return lines


def meaning(verdict: Verdict, plan: Plan) -> str:
    """What the headline's label says, in words that need no other page."""
    families = f"{plan.main_family} and {plan.verdict.replication.family}"
    asked = f"The contrast asked for (the control damaged and another arm stable, in both {families})"
    said = {
        model.UNDECIDED: f"{asked} may have appeared or not: a number that decides it is missing or undefined.",
        model.INCOMPLETE: f"{asked} cannot be judged yet.",
        model.NOT_RUN: f"{asked} was not judged.",
    }
    if verdict.label in said:
        return said[verdict.label]
    found = any(one.code in REPLICATION_REASONS for one in verdict.reasons)
    text = f"{asked} {'did not appear' if found else 'appeared'}."
    table = plan.verdict.replication.table
    if table == STUDY:
        return text
    return f"{text} The plan's own table makes that {verdict.label}: {table_words('replication', table)}."


def arms_in_words(plan: Plan) -> Group:
    """What each arm does; one that adds to an earlier arm is told by what it adds."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, said in arm_sentences(plan):
        table.add_row(f"`{name}`", said)
    return titled("Arms", table)


def arm_sentences(plan: Plan) -> list[tuple[str, str]]:
    """(arm, what it does) in plan order."""
    rows = []
    earlier: dict[frozenset[str], str] = {}  # of arms with the same words the first: a plan may have thousands
    for name, arm in plan.arms.items():
        words = arm_in_words(arm, plan.training)
        own = frozenset(words)
        inner = own if own in earlier else max((one for one in earlier if one <= own), key=len, default=None)
        base = None if inner is None else earlier[inner]
        said = words if inner is None else [f"Like `{base}`.", *(line for line in words if line not in inner)]
        if name == plan.verdict.replication.control:
            said = ["The control.", *said]
        elif base is not None and len(said) == 1 and arm.note:
            said = [*said, arm.note]
        rows.append((name, " ".join(said)))
        earlier.setdefault(own, name)
    return rows


def missing(verdict: Verdict) -> list[RenderableType]:
    """Each thing that is not there, above the command that makes it."""
    parts: list[RenderableType] = [Text("Missing", style="bold")]
    wanted: dict[str, list[str]] = {}
    for gap in verdict.missing:
        wanted.setdefault(gap.command, []).append(gap.what)
    for command, things in wanted.items():
        parts += [indented(what) for what in things]
        if verdict.next_command is None:
            parts.append(indented(f"Next: {command}"))
        elif command != verdict.next_command or len(wanted) == 1:
            parts.append(Command(f"    {command}"))
    if len(wanted) > 1 and verdict.next_command is not None:
        parts += [Text("All that is missing, with one command:"), Command(f"    {verdict.next_command}")]
    return parts


def readouts(family: str, sweep: Mapping[str, Any] | None, arms: Sequence[ArmVerdict]) -> Group:
    """The study's Table 1: one row an arm, changes against the sweep."""
    first = arms[0].figures
    sizes = [one.get("rollouts") for one in (sweep, first.subject if first else None) if one]
    of = f", {sizes[0]} rollouts a row" if sizes and sizes[0] else ""
    before = next((arm.figures.unread for arm in arms if arm.figures and arm.figures.unread), None)
    table = plain_table()
    table.add_column("arm", overflow="fold")
    for heading in ("clean", "change", "trunc.", "loop.", "either", *(["un-\nread"] if before else []), "logprob\nchange"):
        table.add_column(heading, justify="right", no_wrap=True)
    levels = {one.level for arm in arms if arm.figures for one in arm.figures.ratios.values() if one.level}
    interval = f"\n({100 * max(levels):g}% CI)" if levels else ""
    table.add_column(f"tokens per\ncorrect{interval}", justify="right", overflow="fold")
    table.add_column(f"clean\nlength{interval}", justify="right", overflow="fold")
    if sweep is not None:
        clean, *counts = (shown(sweep.get(name)) for name in ("clean", "truncated", "looping", "truncated_or_looping"))
        table.add_row("start", clean, "", *counts, *([before[1].shown] if before else []), "", "", "")
    for arm in arms:
        figures = arm.figures
        assert figures is not None
        own, other, given = figures.subject, figures.reference, figures.changes

        def change(name: str, own=own, other=other, given=given) -> Fraction | None:
            if own.get(name) is not None and other.get(name) is not None:
                return exact(own[name]) - exact(other[name])
            return None if given.get(name) is None else exact(given[name])

        cells = [shown(own.get("clean")), signed(change("clean"), 0)]
        cells += [shown(own.get(name)) for name in ("truncated", "looping", "truncated_or_looping")]
        cells += [figures.unread[0].shown] if figures.unread else []
        cells.append(signed(change("logprob"), 3))
        cells += [ratio(figures.ratios.get(name)) for name in SHOWN_RATIOS]
        table.add_row(arm.arm, *cells)
    return titled(f"Readouts, family {family}{of}", table)


def audits(found: Mapping[str, Mapping[str, Sequence[float]]]) -> Group:
    """Ranges over the updates, as shares of the absolute weight."""
    table = plain_table()
    table.add_column("arm", overflow="fold")
    columns = {"negative_share": "negative", "net_share": "net", "truncated_share": "on trunc.", "kl_share": "KL term"}
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for arm, shares in found.items():
        table.add_row(arm, *(share_range(shares.get(name)) for name in columns))
    title = "Audit of the weights: range over the updates, in % of the absolute weight"
    return titled(title, table, Text(AUDIT_LEGEND))


def audit_rows(verdict: Verdict) -> dict[str, Mapping[str, Sequence[float]]]:
    """The audited arms, and those of this program that have no share to show because they took no step."""
    idle = {one for one, found in verdict.steps.items() if not found["stepped"] and one.split("/")[1] not in verdict.external}
    names = [one for one in verdict.audits if one not in verdict.steps]
    names = [one for one in verdict.steps if one in idle or one in verdict.audits] + names
    return {f"{one}: no step" if one in idle else one: verdict.audits.get(one, {}) for one in names}


def labels(verdict: Verdict) -> Group:
    """Every label beside the headline's, the arms' first."""
    parts: list[RenderableType] = []
    widest = max((len(one.name) for one in verdict.arms), default=0)
    for one in verdict.arms:
        parts.append(Text.assemble(f"{one.name:<{widest}}  ", (verdict.shown_arm(one), style(one.label))))
    if parts and verdict.sections:
        parts.append(Text())
    for name, section in verdict.sections.items():
        parts += section_label(verdict, name, section)
    if verdict.journal is not None:
        if parts:
            parts.append(Text())
        parts.append(Text(f"Journal: {verdict.journal['length']} events, head {verdict.journal['head'][:16]}"))
    return Group(*parts)


def undefined_ratios(arms: Sequence[ArmVerdict]) -> list[str]:
    """Why a ratio or its interval is missing in the tables."""
    found = []
    for arm in arms:
        for name in SHOWN_RATIOS:
            one = arm.figures.ratios.get(name) if arm.figures else None
            if arm.figures and name in arm.figures.absent:
                found.append(f"{arm.name}, {name}: {arm.figures.absent[name]}.")
            if one is not None and one.reason is not None:
                clusters = f" ({one.clusters} clusters)" if one.reason == "few_clusters" else ""
                found.append(f"{arm.name}, {name}: {REASONS[one.reason]}{clusters}.")
    return found


def stop_in_words(arm: ArmVerdict) -> str:
    stop = arm.stopped or {}
    text = f"{arm.name}: stop rule `{stop.get('rule')}` ended the run after update {stop.get('update')}, so it has no readout"
    return f"{text}: {stop['reason']}." if stop.get("reason") else f"{text}."


def count_in_words(one: Mapping[str, Any]) -> str:
    n = one["rollouts"]
    points = f"{with_sign(one['points'], 0)} percentage points"
    return f"{one['name']}: {one['measure']} {one['subject']} of {n} against {one['reference']} of {n}, {points} ({one['how']})"


def share_range(ends: Sequence[float] | None) -> str:
    if ends is None:
        return NOTHING
    return percent_range(*ends)
