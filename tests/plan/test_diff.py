from __future__ import annotations

from ablation.plan.canonical import canonical_tree
from ablation.plan.diff import added_only, diff_trees, shortened
from ablation.plan.load import load_plan
from tests.plan.conftest import OWN_TABLE, RIGGED_TABLE, TEXT, with_table, write_plan


def test_lines():
    old = {"a": 1, "b": {"c": "x", "d": [1, 2]}, "gone": None}
    new = {"a": 1.0, "b": {"c": "y", "d": [1, 3, 4]}, "new": True}
    assert diff_trees(old, new) == [
        '  b.c: "x" -> "y"',
        "  b.d[1]: 2 -> 3",
        "  b.d[2]: (not there) -> 4",
        "  new: (not there) -> true",
        "  gone: null -> (not there)",
    ]
    assert diff_trees({"a": True}, {"a": 1}) == ["  a: true -> 1"]


def test_added_only():
    assert added_only({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3})
    assert not added_only({"a": {"b": 1}}, {"a": {"b": 2, "c": 2}})
    assert not added_only({"a": 1}, {})
    assert not added_only({"a": [1]}, {"a": [1, 2]})


def cells(**efforts: list[str]) -> dict:
    return {"problems": {"cells": efforts}}


def test_cells_take_one_line_an_effort():
    ids = [f"p{number:02d}" for number in range(20)]
    assert diff_trees(cells(low=ids, high=ids), cells(low=ids[:4], high=ids)) == [
        "  problems.cells.low: 20 ids -> 4 ids: without p04, p05, p06, p07, p08, p09, p10, p11, and 8 more"
    ]
    assert diff_trees(cells(low=ids[:2]), cells(low=["p00", "q1"])) == [
        "  problems.cells.low: 2 ids -> 2 ids: without p01; with q1"
    ]
    assert diff_trees(cells(low=ids[:2]), cells(low=ids[1::-1])) == ["  problems.cells.low: 2 ids -> 2 ids: in another order"]
    assert diff_trees(cells(low=ids), cells(high=ids[:1])) == [
        "  problems.cells.high: (not there) -> 1 id",
        "  problems.cells.low: 20 ids -> (not there)",
    ]
    assert diff_trees(cells(low=ids), cells(low=list(ids))) == []


def test_rows_of_tables_are_shown_without_what_they_do_not_use(tmp_path):
    before, own, rigged = (
        canonical_tree(load_plan(write_plan(tmp_path, text)).plan)
        for text in (TEXT, with_table(OWN_TABLE), with_table(RIGGED_TABLE))
    )
    at = "  verdict.replication.table"
    assert diff_trees(before, rigged) == [f'{at}: "study" -> [{{"label": "REPLICATED"}}]']
    missed = '{"any": [{"reason": "NO_STABLE_ARM"}, {"reason": "NOT_STABLE_AGAIN"}, {"reason": "STOPPED"}]}'
    assert diff_trees(rigged, own, full=True) == [
        f'{at}[0].label: "REPLICATED" -> "INCONCLUSIVE"',
        f'{at}[0].when: (not there) -> {{"reason": "CONTROL_NOT_DAMAGED"}}',
        f'{at}[1]: (not there) -> {{"label": "NOT_REPLICATED", "when": {missed}}}',
        f'{at}[2]: (not there) -> {{"label": "REPLICATED"}}',
    ]


def test_of_long_values_their_size_is_told_unless_all_is_asked_for():
    fields = {name: "x" * 20 for name in "abcdef"}
    old = {"arm": fields, "list": list(range(40)), "text": "y" * 100}
    assert diff_trees(old, {}) == [
        "  arm: {a, b, c, d, ...} (6 fields) -> (not there)",
        "  list: [...] (40 entries) -> (not there)",
        f'  text: "{"y" * 55}..." -> (not there)',
    ]
    assert diff_trees(old, {}, full=True)[2] == f'  text: "{"y" * 100}" -> (not there)'
    assert diff_trees({"a": "z" * 58}, {}) == [f'  a: "{"z" * 58}" -> (not there)']


def test_many_differences_are_counted():
    lines = [f"  line {number}" for number in range(20)]
    assert shortened(lines, 5) == [*lines[:5], "  and 15 more differences"]
    assert shortened(lines[:6], 5) == lines[:6]
