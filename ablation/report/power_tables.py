"""The answer of `ablation plan power` for a reader who has never seen it: sentences first, then tables of at most 80 columns."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.plan.load import LoadedPlan
from ablation.power.effects import Effects
from ablation.power.power import Power
from ablation.power.rates import FIXED, Rates
from ablation.power.summary import RuleShare, Scenario, SectionShare, Share
from ablation.power.target import Proposal
from ablation.verdict.model import REPLICATED

REASONS_TITLE = "reason (a study can have several)"
SECTION_TITLES = {"held_out": "Held-out", "never_used": "Never-used", "main": "Main set", "release": "Release guards"}


def power_page(loaded: LoadedPlan, found: Power) -> RenderableType:
    """The page for a terminal of 80 columns or more."""
    plan, model, calm = loaded.plan, found.inputs.model, found.no_difference
    parts: list[RenderableType] = [Text(f"{plan.name}: how often luck would decide", style="bold")]

    def section(title: str, *content: RenderableType) -> None:
        parts.append(Text(f"\n{title}", style="bold cyan"))
        parts.extend(Padding(part, (0, 0, 0, 2), expand=False) for part in content)

    def tables(*content: RenderableType) -> None:
        parts.extend(Padding(part, (1, 0, 0, 2), expand=False) for part in content)

    intro = f"{found.settings.studies:,} studies of this plan, simulated from sweep to label (seed {found.settings.seed}). "
    intro += f"Shares carry {PLUS_MINUS} one standard error of the simulation."
    parts.append(Padding(Text(intro), (0, 0, 0, 2), expand=False))
    section("The starting model", Text(_start(model.rates, found)))
    section("If there were no difference at all between any arm and the start", Text(in_words(calm)))
    tables(_labels(calm), _reasons(calm), _rules(calm, None), *([_stops(found)] if found.stops else []), *_cut(calm))
    if found.with_effects is not None:
        one, control = found.with_effects, plan.verdict.replication.control
        section(f"With the effects that you named: {_effects(one.effects)}", Text(in_words(one)))
        tables(_labels(one), _reasons(one), _rules(one, control), _runs(one), *_cut(one))
    for name in calm.sections:
        after = None if found.with_effects is None else found.with_effects.sections[name]
        text = "Each on its own set; a guard fails in the rest of the comparisons."
        if name in model.sections:
            own = model.sections[name]
            text = f"{own.total} rollouts each of the start ({_rates(own)}; {own.source}) and of a model that equals it."
        section(SECTION_TITLES[name], Text(text), _section(calm.sections[name], after))
    if found.inputs.target is not None:
        low, high = found.inputs.target
        title = f"Limits at which an equal model fires (or fails) a rule in {_percent(low)} to {_percent(high)} of runs"
        section(title, *(_proposal(one) for one in found.proposals))
    section("Every rule can fire and can pass", *_reach(found))
    section("What this leaves out", Text("\n".join(f"- {line}" for line in [*found.inputs.notes, *found.left_out])))
    return Group(*parts)


def summary_lines(loaded: LoadedPlan, found: Power) -> list[str]:
    """A few sentences, for `ablation plan lock`."""
    calm = found.no_difference
    return [
        f"luck, by {found.settings.studies:,} simulated studies: {in_words(calm)}",
        f"A run that equals the start would be called damaged in {share_text(calm.any_damage)} of runs. Assumed, not measured: "
        f"{_rates(found.inputs.model.rates)}.",
        f"`ablation plan power {loaded.path}` says more, and takes a pilot sweep and effects.",
    ]


def in_words(one: Scenario) -> str:
    """The labels in a sentence."""
    others = [f"{label} would come out in {_of_studies(share)}" for label, share in one.labels.items() if label != REPLICATED]
    start = "" if one.effects else "If there were no difference at all, "
    if REPLICATED in one.labels:
        luck = "" if one.effects else ", by luck alone,"
        share = _of_studies(one.labels[REPLICATED])
        others.append(f"and {REPLICATED}{luck} in {share}" if others else f"{REPLICATED} would come out{luck} in {share}")
    return f"{start}{', '.join(others)}."


def _of_studies(share: Share) -> str:
    if share.below is None:
        return f"{share_text(share)} of studies"
    if share.value == 1:
        return f"all {share.studies:,} simulated studies"
    return f"none (so in under {100 * share.below:.2g}% of studies)"


PLUS_MINUS = "±"
CUT_SHOWN = 0.001
"""Share of runs with a change that was cut, up to which nothing is said."""


def share_text(share: Share | None) -> str:
    """`2.6% ± 0.2`; where nothing (or everything) came out, the bound that this many studies give."""
    if share is None:
        return "-"
    if share.below is not None:
        bound = f"{100 * share.below:.2g}%"
        return f"none (under {bound})" if share.value == 0 else f"all (others under {bound})"
    digits = min(4, max(1, math.ceil(-math.log10(100 * share.se))))  # one digit of the standard error
    return f"{100 * share.value:.{digits}f}% {PLUS_MINUS} {100 * share.se:.{digits}f}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place > 0 and column != "", justify="left")
    return table


def _start(rates: Rates, found: Power) -> str:
    source = rates.source[0].upper() + rates.source[1:]
    text = f"{source}: {_rates(rates)}; {rates.total} rollouts in {len(rates.parameters_KC)} cells. "
    concentration = rates.concentration
    if concentration >= FIXED:
        text += "All cells have the same rates. "
    else:
        text += f"Rates differ between cells (concentration {concentration:.3g}: {1 / (1 + concentration):.0%} of the variance). "
    spreads = ", ".join(f"{name} {one.within:.3g} and {one.between:.3g}" for name, one in rates.means.items())
    text += f"Standard deviation in a cell and between cells: {spreads}."
    if found.inputs.model.correlation:
        text += f" Correlation of a rollout with its same-seed partner: {found.inputs.model.correlation:g}."
    if found.inputs.model.spread:
        spread = ", ".join(f"{name} {sd:g}" for name, sd in found.inputs.model.spread.items())
        text += f" Standard deviation between training seeds: {spread}."
    if found.settings.pilot is None:
        text += "\nNobody measured this: a sweep of the start says it (--pilot RUN/main/start/sweep)."
    return text


def _rates(rates: Rates) -> str:
    expected = rates.expected()
    return ", ".join(f"{_percent(expected[name])} {name}" for name in ("correct", "truncated", "looping"))


def _effects(effects: Effects) -> str:
    parts = [f"{who} " + ", ".join(f"{name} {by:+zg}" for name, by in one.items()) for who, one in effects.items()]
    return "; ".join(parts)


def _labels(one: Scenario) -> Table:
    table = _table("label", "share of studies")
    for label, share in one.labels.items():
        table.add_row(Text(label), Text(share_text(share)))
    return table


def _reasons(one: Scenario) -> Table:
    table = _table(REASONS_TITLE, "found in")
    for _, text, share in one.reasons:
        table.add_row(Text(text), Text(share_text(share)))
    return table


def _rules(one: Scenario, control: str | None) -> Table:
    """`control` None: all arms are equal, so one column is enough."""
    if control is None:
        table = _table("damage rule", "fires in", "")
        for rule in one.rules:
            table.add_row(Text(rule.rule.name), Text(_share_of(rule)), Text(rule.words))
        table.add_row(Text("any of them"), Text(share_text(one.any_damage)), Text("the run is called damaged"))
        return table
    others = [arm for family, arm, _ in one.damaged if family == one.damaged[0][0] and arm != control]
    table = _table("damage rule", f"fires for {control}", *(["for the other arms, lowest and highest"] if others else []))
    for rule in one.rules:
        if not rule.simulated:
            table.add_row(Text(rule.rule.name), Text("not simulated"), *([Text("")] if others else []))
            continue
        values = sorted(rule.by_arm[arm].value for arm in others)
        text = f"{100 * values[0]:.1f}% to {100 * values[-1]:.1f}%" if others and values[-1] else "none"
        span = [Text(text)] if others else []
        table.add_row(Text(rule.rule.name), Text(share_text(rule.by_arm[control])), *span)
    return table


def _stops(found: Power) -> Table:
    table = _table("stop rule", "ends a run in", "")
    for one in found.stops:
        share = "not simulated" if one.share is None else share_text(one.share)
        table.add_row(Text(one.rule.name), Text(share), Text(one.words))
    return table


def _runs(one: Scenario) -> Table:
    table = _table("run", "damaged in")
    for family, arm, share in one.damaged:
        table.add_row(Text(f"{family}/{arm}"), Text(share_text(share)))
    return table


def _cut(one: Scenario) -> list[RenderableType]:
    if one.cut <= CUT_SHOWN:
        return []
    return [Text(f"In {one.cut:.1%} of the moved runs a change was larger than what their cells have, and was cut.")]


def _share_of(rule: RuleShare) -> str:
    return share_text(rule.overall) if rule.simulated else "not simulated"


def _section(calm: SectionShare, after: SectionShare | None) -> Table:
    table = _table("rule", "holds for an equal model", *(["with the effects"] if after else []))
    for place, rule in enumerate(calm.rules):
        more = [Text(_share_of(after.rules[place]))] if after else []
        table.add_row(Text(rule.words), Text(_share_of(rule)), *more)
    everything = "all of them" if all(rule.simulated for rule in calm.rules) else "all that are simulated"
    table.add_row(Text(everything), Text(share_text(calm.all_hold)), *([Text(share_text(after.all_hold))] if after else []))
    return table


def _proposal(one: Proposal) -> RenderableType:
    strikes = "fires" if one.section == "damage" else "fails"
    where = "" if one.section == "damage" else f"{one.section}: "
    table = _table(f"{where}{one.rule.name} {one.rule.op}", f"{strikes} in", "")
    for limit, share in one.around:
        marks = [word for word, is_so in (("proposed", limit == one.limit), ("the plan's", limit == one.rule.limit)) if is_so]
        table.add_row(Text(str(limit)), Text(share_text(share)), Text(", ".join(marks)))
    if one.rule.limit not in [limit for limit, _ in one.around]:
        table.add_row(Text(f"{one.rule.limit:g}"), Text(share_text(one.now)), Text("the plan's"))
    parts: list[RenderableType] = [table]
    if one.limit is None:
        parts.append(Text("No whole number has a share inside the target."))
    return Padding(Group(*parts), (0, 0, 1, 0), expand=False)


def _reach(found: Power) -> list[RenderableType]:
    table = _table("rules", "name", "holds at", "does not at")
    for one in found.reach:
        ends = ["-" if value is None else f"{value:g}" for value in (one.holds_at, one.fails_at)]
        table.add_row(Text(one.group), Text(one.name), *map(Text, ends))
    parts: list[RenderableType] = [Text("Each rule's own judge, on made-up figures nearest to its limit:"), table]
    return parts + [Text(f"{one.name}: {one.problem}", style="bold") for one in found.reach if one.problem]
