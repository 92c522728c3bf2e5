from __future__ import annotations

import pytest

from ablation.plan.tables import Condition, Row
from ablation.power.idle import idle_rows
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
    assert deciding_rows(rows, Facts(rules), most=500) == {0, 1}
    few = dict(list(rules.items())[:4])
    rows[0] = Row(label="YES", when=Condition(all=sure.all[:4]))
    assert deciding_rows(rows, Facts(few)) == {0}
    assert deciding_rows([Row(label="YES", when=Condition(rules="all")), Row(label="NO")], Facts(rules)) == {0, 1}
