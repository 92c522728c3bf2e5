"""A replication's own decision table in words: its rows, and the labels that each reason leads to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from ablation.plan.judging import REPLICATION_REASONS
from ablation.plan.model import Plan
from ablation.plan.tables import Row, rows_of
from ablation.power.idle import unearned_rows
from ablation.verdict.model import REPLICATED
from ablation.verdict.tables import Facts, decide, in_words

NEVER_TOGETHER = {"NO_STABLE_ARM", "NOT_STABLE_AGAIN"}
"""Without a stable arm in the first family none is run again."""


def headline_rows(plan: Plan) -> list[tuple[str, str]]:
    """(label, when it comes out) of each row of the table, in order."""
    rows = rows_of("replication", plan.verdict.replication.table)
    otherwise = "if no row before it is true" if len(rows) > 1 else "always, whatever is found"
    return [(row.label, otherwise if row.when is None else f"if {in_words(row.when)}") for row in rows]


def headline(plan: Plan, reasons: Collection[str] = ()) -> str:
    """The label if these reasons are found and no other."""
    return _label(rows_of("replication", plan.verdict.replication.table), reasons)


def leads_to(plan: Plan, reason: str) -> str:
    """A sentence: the label if `reason` is found, alone and beside others that can be found in the same study."""
    alone = headline(plan, (reason,))
    rows = rows_of("replication", plan.verdict.replication.table)
    beside = dict.fromkeys(_label(rows, some) for some in _possible(plan) if reason in some)
    others = [label for label in beside if label != alone]
    if not others:
        return f"The label is then {alone}."
    return f"Found alone, it makes the label {alone}; beside other reasons the label can be {' or '.join(others)}."


def claims_too_much(plan: Plan) -> str:
    """What is wrong with a table that says REPLICATED although a reason was found; empty if it does not."""
    if not unearned_rows(rows_of("replication", plan.verdict.replication.table)):
        return ""
    return f"This table can say {REPLICATED} where nothing was replicated: `plan check` and `plan lock` refuse it."


def _possible(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Reasons that can be found together in one study of `plan`."""
    codes = [code for code in REPLICATION_REASONS if code != "STOPPED" or plan.stop_rules]
    for size in range(1, len(codes) + 1):
        yield from (some for some in combinations(codes, size) if not set(some) >= NEVER_TOGETHER)


def _label(rows: Sequence[Row], reasons: Collection[str]) -> str:
    return decide(rows, Facts(reasons={code: code in reasons for code in REPLICATION_REASONS})).label
