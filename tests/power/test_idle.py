from __future__ import annotations

import pytest

from ablation.plan.tables import Condition, Row
from ablation.power.idle import idle_rows, unearned_rows
from ablation.verdict.tables import Facts, deciding_rows
from tests.study.evaluations import RULE, lock_phase2


def held_out(tmp_path, table, rules=(RULE,)):
    verdict = lock_phase2(tmp_path / "other").plan.model_dump(mode="json", exclude_unset=True)["verdict"]
    verdict["held_out"] |= {"rules": list(rules), "table": table}
    return lock_phase2(tmp_path / "plans", verdict=verdict).plan


@pytest.mark.parametrize(
    ("rows", "idle"),
    [
        ([{"label": "NO_WIN", "when": {"none": [{"rules": "all"}]}}, {"label": "WIN_VERIFIED"}], []),
        (
            [
                {"label": "NO_WIN", "when": {"none": [{"rules": "all"}]}},
                {"label": "WIN_VERIFIED", "when": {"of": "blinded_read", "label": "PASSED"}},
                {"label": "LOST", "when": {"none": [{"rule": "kept"}]}},
                {"label": "WIN_UNVERIFIED"},
            ],
            [2],
        ),
        (
            [
                {"label": "WIN_VERIFIED", "when": {"any": [{"rule": "kept"}, {"none": [{"rule": "kept"}]}]}},
                {"label": "NO_WIN"},
            ],
            [1],
        ),
        (
            [
                {"label": "TIER_ONE", "when": {"all": [{"rules": "all"}, {"of": "blinded_read", "label": "PASSED"}]}},
                {"label": "WIN_VERIFIED", "when": {"of": "blinded_read", "label": "PASSED"}},
                {"label": "NO_WIN"},
            ],
            [],
        ),
    ],
)
def test_rows_that_no_outcome_reaches(tmp_path, rows, idle):
    found = idle_rows(held_out(tmp_path, rows))
    assert [place for place, _ in found] == [("verdict", "held_out", "table", row) for row in idle]


def test_a_table_too_large_to_see_through_is_believed():
    rules = {f"r{i}": None for i in range(40)}
    sure = Condition(all=[Condition(any=[Condition(rule=name), Condition(none=[Condition(rule=name)])]) for name in rules])
    rows = [Row(label="YES", when=sure), Row(label="NO")]
    assert deciding_rows(rows, Facts(rules), most=500) == {0}
    pairs = [Condition(any=[Condition(rule=f"r{i}"), Condition(rule=f"r{i + 20}")]) for i in range(20)]
    either = Condition(any=[Condition(all=pairs), Condition(none=[Condition(all=pairs)])])
    hard = [Row(label="YES", when=Condition(all=[*sure.all[:20], either])), Row(label="NO")]
    assert deciding_rows(hard, Facts(rules), most=500) == {0, 1}
    few = dict(list(rules.items())[:4])
    rows[0] = Row(label="YES", when=Condition(all=sure.all[:4]))
    assert deciding_rows(rows, Facts(few)) == {0}
    assert deciding_rows([Row(label="YES", when=Condition(rules="all")), Row(label="NO")], Facts(rules)) == {0, 1}


def rows(*table: dict) -> list[Row]:
    return [Row.model_validate(row) for row in table]


def reason(code: str) -> dict:
    return {"reason": code}


REASONS = ("CONTROL_NOT_DAMAGED", "NO_STABLE_ARM", "NOT_STABLE_AGAIN", "STOPPED")
LAST = {"label": "REPLICATED"}


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ([{"label": "NO", "when": {"any": [reason(code) for code in REASONS]}}, LAST], []),
        (
            [
                {"label": "INCONCLUSIVE", "when": reason(REASONS[0])},
                {"label": "NO", "when": {"any": [reason(code) for code in REASONS[1:]]}},
                LAST,
            ],
            [],
        ),
        ([{"label": "REPLICATED", "when": {"none": [reason(code) for code in REASONS]}}, {"label": "NO"}], []),
        ([LAST], [(0, " or ".join(REASONS))]),
        ([{"label": "NO", "when": {"any": [reason(code) for code in REASONS[:3]]}}, LAST], [(1, "STOPPED")]),
        (  # each reason alone says NO; two together do not
            [
                {"label": "REPLICATED", "when": {"all": [reason("STOPPED"), reason("NO_STABLE_ARM")]}},
                {"label": "NO", "when": {"any": [reason(code) for code in REASONS]}},
                LAST,
            ],
            [(0, "NO_STABLE_ARM and STOPPED")],
        ),
        (
            [
                {"label": "REPLICATED", "when": reason("NO_STABLE_ARM")},
                {"label": "NO", "when": {"any": [reason("CONTROL_NOT_DAMAGED"), reason("STOPPED")]}},
                LAST,
            ],
            [(0, "NO_STABLE_ARM"), (1 + 1, "NOT_STABLE_AGAIN")],
        ),
    ],
)
def test_replicated_where_a_reason_was_found(table, found):
    why = "was found; phase 2 would open without a replication. Let a row before it give another label for that"
    assert unearned_rows(rows(*table)) == [(row, f"says REPLICATED although {what} {why}") for row, what in found]
