"""Runs of one plan beside each other, for a terminal of 80 columns: a column for each run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ablation.plan.model import Plan
from ablation.report.side_by_side import RunOfPlan
from ablation.report.terminal import clean
from ablation.report.verdict_parts import NOTHING, hours_in_words, plain_table, shown_number
from ablation.rollouts.attempts import Attempts

NOT_FINITE = "not finite"
GONE = "audits gone"
AT_ONCE = 4
"""Runs in one table of 80 columns; more come in tables below."""
WIDTH, FIRST = 80, 19
"""Columns of the page, and those of the names of rules as the study has them."""
LEGEND = (
    "mismatch = trainer's against sampler's logprobs, nats; before training: in the proof that every run begins with, where "
    "another engine samples; in updates: weighted tokens of all arms; outside: share of them whose ratio is more than 10% off 1. "
    "same rollouts = share of the first sweep's rollouts that are the first run's, token by token."
)

LUCK = (
    "Their rollouts are not the same, so labels can differ by luck alone: `ablation plan power` says how often a run that equals "
    "its start is called damaged."
)


def pages(plan: Plan, digest: str, runs: Sequence[RunOfPlan]) -> Iterator[RenderableType]:
    """Top to bottom."""
    yield Text.assemble(("plan ", "bold"), clean(plan.name), f"  {digest[:16]}: the same locked bytes in every run")
    for start in range(0, len(runs), AT_ONCE):
        yield Text("")
        yield _table(runs[start : start + AT_ONCE], first=runs[0])
    yield Text("")
    yield Text(LEGEND)
    told = [(f"{one.root.name}: ", line.in_words()) for one in runs for line in one.verdict.attempts.redone]
    told += [("", line) for line in dict.fromkeys(line for one in runs for line in one.verdict.attempts.beside)]
    if told:
        yield Text("")
    yield from (Text(clean(f"{whose}{line}")) for whose, line in told)
    yield Text("")
    yield Text(_conclusion(runs), style="bold")


def _table(runs: Sequence[RunOfPlan], first: RunOfPlan) -> Table:
    grid = plain_table()
    grid.add_column("", overflow="fold", width=FIRST)
    each = (WIDTH - FIRST - 1) // len(runs) - 1  # a blank behind every column
    for one in runs:
        grid.add_column(clean(one.root.name), justify="right", overflow="fold", width=each)
    grid.add_row("backend", *(clean(one.backend) for one in runs))
    grid.add_row("engine", *(clean(one.version) for one in runs))
    grid.add_row("device", *(clean("; ".join(one.devices)) or NOTHING for one in runs))
    grid.add_row("work done by", *(clean(one.where) for one in runs))
    grid.add_row("verdict", *(one.verdict.shown(one.verdict.label) for one in runs), style="bold")
    for name in dict.fromkeys(arm.name for one in runs for arm in one.verdict.arms):
        labels, numbers = [], {}
        for place, one in enumerate(runs):
            arm = next((arm for arm in one.verdict.arms if arm.name == name), None)
            labels.append(NOTHING if arm is None else one.verdict.shown_arm(arm))
            for result in () if arm is None else arm.rules:
                numbers.setdefault(result.rule.name, [NOTHING] * len(runs))[place] = shown_number(result)
        grid.add_row(clean(name), *labels)
        for rule, found in numbers.items():
            grid.add_row(f"  {clean(rule)}", *found)
    grid.add_row("mismatch, nats")
    grid.add_row("  before training", *(_nats(one.before) for one in runs))
    none = [GONE if one.gone else NOTHING for one in runs]
    found = list(zip((one.mismatch for one in runs), none, strict=True))
    grid.add_row("  in updates, mean", *(nothing if one is None else _nats(one.mean) for one, nothing in found))
    grid.add_row("  99th percentile", *(nothing if one is None else _nats(one.p99) for one, nothing in found))
    grid.add_row("  outside 10%", *(nothing if one is None else _share(one.outside, 2) for one, nothing in found))
    grid.add_row("same rollouts", *("first" if one is first else _share(one.same) for one in runs))
    grid.add_row("rollouts", *(f"{one.rollouts:,}" for one in runs))
    grid.add_row("tokens", *(f"{one.tokens:,}" for one in runs))
    grid.add_row("work took", *(hours_in_words(one.seconds / 3600) for one in runs))
    return grid


def _conclusion(runs: Sequence[RunOfPlan]) -> str:
    labels = dict.fromkeys(replace(one.verdict, attempts=Attempts()).shown(one.verdict.label) for one in runs)
    arms = [{arm.name: arm.label for arm in one.verdict.arms} for one in runs]
    every = dict.fromkeys(name for one in arms for name in one)
    differ = [name for name in every if len({one[name] for one in arms if name in one}) > 1]
    absent = [name for name in every if any(name not in one for one in arms)]
    every_run = "Both" if len(runs) == 2 else f"All {len(runs)}"
    first = f"{every_run} runs say {next(iter(labels))}" if len(labels) == 1 else f"The runs differ: {', '.join(labels)}"
    if absent:
        first += f"; not in every run: {', '.join(map(clean, absent))}"
    if differ:
        luck = f" {LUCK}" if any(one.same is not None and one.same < 1 for one in runs) else ""
        return f"{first}; arms with different labels: {', '.join(map(clean, differ))}.{luck}"
    return f"{first}." if absent else f"{first}; every arm has the same label in each."


def _nats(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2g}" if math.isfinite(value) else NOT_FINITE


def _share(value: float | None, places: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{places}%}" if math.isfinite(value) else NOT_FINITE
