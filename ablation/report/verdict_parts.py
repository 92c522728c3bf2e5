"""Pieces that the pages of a verdict are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.measures.estimate import METHODS, Estimate
from ablation.plan.measures import COUNTS
from ablation.plan.words import number
from ablation.report.numbers import fixed, with_sign
from ablation.verdict import model
from ablation.verdict.exact import exact
from ablation.verdict.rules import BOUND, STATED, RuleResult

GOOD = (model.STABLE, model.REPLICATED, model.WIN_VERIFIED, model.CONFIRMED, model.RELEASE)
OPEN = (model.INCOMPLETE, model.UNDECIDED, model.NOT_RUN, model.MISSING, model.WIN_UNVERIFIED, model.NO_STEP)
NOTHING = "-"


def hours_in_words(hours: float) -> str:
    """`42 seconds`, `17 minutes`, `3.5 hours`."""
    minutes = hours * 60
    return f"{hours:.1f} hours" if hours >= 2 else f"{minutes:.0f} minutes" if minutes >= 2 else f"{minutes * 60:.0f} seconds"


class Command(str):
    """A line that is to be copied, so it is never wrapped."""


def rules(
    title: str,
    groups: Sequence[tuple[str, Sequence[RuleResult]]],
    yes: str,
    no: str,
    alarms: Mapping[str, Mapping[str, Any]] | None = None,
) -> Group:
    """(whose, its rules) -> one row a rule, below a legend that says each rule in words. `yes`: the word for one that holds.

    `alarms`: rule -> how often a model equal to the start would fail it, see `power.guards`.
    """
    legend = Table(box=None, show_header=False, pad_edge=False)
    for one in dict.fromkeys((one.rule.name, one.words) for _, results in groups for one in results):
        legend.add_row(*one)
    grid = plain_table()
    owners = any(name for name, _ in groups)
    if owners:
        grid.add_column("arm", overflow="fold")
    grid.add_column("rule", overflow="fold")
    grid.add_column("number", justify="right", no_wrap=True)
    grid.add_column("limit", justify="right", no_wrap=True)
    grid.add_column("result")
    if alarms:
        grid.add_column("an equal model fails")
    stated = False
    for name, results in groups:
        for place, one in enumerate(results):
            word = {True: yes, False: no, None: "undecided"}[one.holds]
            bold = one.holds is None or one.holds is (yes == "fired")
            stated |= one.how == STATED
            why = "*" if one.how == STATED else f": {one.reason}" if one.holds is None else ""
            row = [name if place == 0 else ""] if owners else []
            limit = f"{one.rule.op} {number(one.rule.limit)}"
            row += [one.rule.name, shown_number(one), limit]
            more = [alarms.get(one.rule.name, {}).get("words", "not simulated")] if alarms else []
            grid.add_row(*row, Text(word + why, style="bold" if bold else ""), *more)
    footnote = [Text(f"* {STATED}")] if stated else []
    return titled(title, legend, Text(), grid, *footnote, *map(Text, how_computed(groups)))


def how_computed(groups: Sequence[tuple[str, Sequence[RuleResult]]]) -> list[str]:
    """Where numbers with an interval are from; a line for all rules that say the same."""
    said: dict[str, dict[str, None]] = {}
    for _, results in groups:
        for one in results:
            found = one.estimate
            if one.how == BOUND and found is not None:
                said.setdefault(f"exact bound, because all {found.clusters} clusters agree", {})[one.rule.name] = None
            if found is None or found.low is None or found.method is None:
                continue
            text = f"{METHODS[found.method]}, {found.clusters} clusters, {100 * (found.level or 0):g}%"
            text += f", {found.estimand}" if found.estimand else ""
            said.setdefault(text, {})[one.rule.name] = None
    return [f"{', '.join(names)}: {text}." for text, names in said.items()]


def shown_number(one: RuleResult) -> str:
    """The tested number with enough digits that it is on the right side of its limit as printed, too."""
    if one.value is None:
        return NOTHING
    if one.value.denominator == 1 and one.rule.measure in COUNTS and one.rule.compare in ("value", "change"):
        return signed(one.value, 0) if one.rule.compare == "change" else str(one.value)
    limit = exact(one.rule.limit)
    for digits in range(2 if one.rule.compare.startswith("ratio") else 3, 12):
        printed = Fraction(f"{float(one.value):.{digits}f}")
        if (printed > limit) == (one.value > limit) and (printed < limit) == (one.value < limit):
            break
    return (with_sign if one.rule.compare == "change" else fixed)(one.value, digits)


def indented(text: str) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, 2))


def plain_table() -> Table:
    """A table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))


def titled(title: str, *parts: RenderableType) -> Group:
    return Group(Text(title, style="bold"), *parts)  # a title of the table itself would wrap at the table's width


def style(label: str) -> str:
    return "bold green" if label in GOOD else "bold yellow" if label in OPEN else "bold red"


def shown(value: Any) -> str:
    return NOTHING if value is None else str(value)


def signed(value: Fraction | None, digits: int) -> str:
    return NOTHING if value is None else with_sign(value, digits)


def ratio(one: Estimate | None) -> str:
    if one is None or one.value is None:
        return NOTHING if one is None else "undefined"
    if one.low is None or one.high is None:
        return f"{float(one.value):.2f}x"
    return f"{float(one.value):.2f}x ({one.low:.2f}-{one.high:.2f})"
