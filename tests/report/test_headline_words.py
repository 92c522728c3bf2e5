from __future__ import annotations

import pytest

from ablation.plan.load import load_plan
from ablation.report.headline_words import claims_too_much, headline, headline_rows, leads_to
from tests.plan.conftest import OWN_TABLE, RIGGED_TABLE, TEXT, with_table, write_plan

BOTH = "[{label: LUCKY, when: {all: [{reason: NO_STABLE_ARM}, {reason: NOT_STABLE_AGAIN}]}}, {label: REPLICATED}]"
"""Its first row asks for what cannot be found in one study."""


def plan_with(folder, table: str):
    return load_plan(write_plan(folder, with_table(table))).plan


def test_the_study_s_table(tmp_path):
    plan = load_plan(write_plan(tmp_path)).plan
    assert (headline(plan), headline(plan, ("STOPPED",))) == ("REPLICATED", "NOT_REPLICATED")
    assert claims_too_much(plan) == ""
    assert leads_to(plan, "NO_STABLE_ARM") == "The label is then NOT_REPLICATED."


@pytest.mark.parametrize(
    ("table", "reason", "said"),
    [
        (OWN_TABLE, "CONTROL_NOT_DAMAGED", "The label is then INCONCLUSIVE."),
        (
            OWN_TABLE,
            "STOPPED",
            "Found alone, it makes the label NOT_REPLICATED; beside other reasons the label can be INCONCLUSIVE.",
        ),
        (RIGGED_TABLE, "STOPPED", "The label is then REPLICATED."),
        (BOTH, "NO_STABLE_ARM", "The label is then REPLICATED."),
    ],
)
def test_labels_that_a_reason_leads_to(tmp_path, table, reason, said):
    assert leads_to(plan_with(tmp_path, table), reason) == said


def test_a_run_that_no_rule_stops_is_no_reason_beside_others(tmp_path):
    table = "[{label: ENDED, when: {reason: STOPPED}}, {label: LOST, when: {none: [{none: [{reason: NO_STABLE_ARM}]}]}}, "
    text = with_table(table + "{label: REPLICATED}]")
    with_stops, without = (load_plan(write_plan(tmp_path, one)).plan for one in (text, no_stops(text)))
    assert leads_to(with_stops, "NO_STABLE_ARM").endswith("beside other reasons the label can be ENDED.")
    assert leads_to(without, "NO_STABLE_ARM") == "The label is then LOST."


def no_stops(text: str) -> str:
    start, end = TEXT.index("stop_rules:"), TEXT.index("verdict:")
    return text.replace(TEXT[start:end], "stop_rules: []\n")


def test_rows_in_order(tmp_path):
    assert headline_rows(plan_with(tmp_path, RIGGED_TABLE)) == [("REPLICATED", "always, whatever is found")]
    assert headline_rows(plan_with(tmp_path, OWN_TABLE))[2] == ("REPLICATED", "if no row before it is true")
    assert claims_too_much(plan_with(tmp_path, RIGGED_TABLE)).startswith("This table can say REPLICATED")
