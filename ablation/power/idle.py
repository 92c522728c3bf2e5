"""Rows of a plan's own decision tables that can never decide, or that say REPLICATED where nothing was replicated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from ablation.plan.judging import READ_LABELS, REPLICATION_REASONS
from ablation.plan.model import Plan
from ablation.plan.rules import Rule
from ablation.plan.tables import Row, Table, labels_of, rows_of
from ablation.verdict.model import REPLICATED
from ablation.verdict.tables import Facts, asked, decide, deciding_rows

Place = tuple[str | int, ...]


def idle_rows(plan: Plan) -> list[tuple[Place, str]]:
    """(place in the plan, what is wrong) of each row of a plan's own tables that no outcome reaches, or that claims too much."""
    problems: list[tuple[Place, str]] = []
    known: dict[str, Sequence[str]] = {"blinded_read": READ_LABELS}
    for section, place, table, rules in _tables(plan):
        if not isinstance(table, str):
            rows = rows_of(section, table)
            labels = {name: tuple(known[name]) for name in known if asked(rows, name)}
            facts = Facts({rule.name: None for rule in rules}, labels, dict.fromkeys(REPLICATION_REASONS))
            there = deciding_rows(rows, facts)
            text = "can never decide: whenever it is true, a row before it is true already, or it is never true"
            problems += [((*place, row), text) for row in range(len(rows)) if row not in there]
            if section == "replication":
                problems += [((*place, row), text) for row, text in unearned_rows(rows)]
        known[section] = labels_of(section, table)
    return problems


def unearned_rows(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """(row, what is wrong) of each row of a replication's table that says REPLICATED although a reason was found."""
    found: dict[int, list[tuple[str, ...]]] = {}
    for size in range(1, len(REPLICATION_REASONS) + 1):
        for some in combinations(REPLICATION_REASONS, size):
            decided = decide(rows, Facts(reasons={code: code in some for code in REPLICATION_REASONS}))
            if decided.label == REPLICATED and decided.row is not None:
                least = found.setdefault(decided.row, [])
                least += [] if any(set(one) <= set(some) for one in least) else [some]
    return [
        (
            row,
            f"says {REPLICATED} although {' or '.join(' and '.join(some) for some in least)} was found; phase 2 would open "
            "without a replication. Let a row before it give another label for that",
        )
        for row, least in sorted(found.items())
    ]


def _tables(plan: Plan) -> Iterator[tuple[str, Place, Table, Sequence[Rule]]]:
    """(section, place, table, its rules) in the order in which they are decided."""
    verdict = plan.verdict
    yield "replication", ("verdict", "replication", "table"), verdict.replication.table, ()
    for name in ("held_out", "never_used"):
        section = getattr(verdict, name)
        if section is not None:
            yield name, ("verdict", name, "table"), section.table, section.rules
    if verdict.release is not None:
        main = verdict.release.main
        if main is not None:
            yield "main", ("verdict", "release", "main", "table"), main.table, main.rules
        yield "release", ("verdict", "release", "table"), verdict.release.table, verdict.release.guards
