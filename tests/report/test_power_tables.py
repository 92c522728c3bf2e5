from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from ablation.plan.load import load_plan
from ablation.power.power import power
from ablation.power.settings import Settings
from ablation.power.summary import Share
from ablation.report.power_tables import in_words, power_page, share_text
from ablation.report.terminal import plain_console
from ablation.training.stops import fired_rule
from tests.plan.conftest import OWN_TABLE, RIGGED_TABLE, with_table, write_plan

PLANS = Path(__file__).parents[2] / "plans"
GOLDEN = Path(__file__).parent / "power_page.txt"
SETTINGS = Settings(
    studies=1000,
    effects=["C.clean=-25", "others.truncated=-10"],
    seed_sd=["clean=4"],
    target="0.01-0.025",
    held_out=["correct=0.5"],
)


def page(width: int) -> str:
    loaded = load_plan(PLANS / "tessera.yaml")
    out = io.StringIO()
    plain_console(file=out, width=width, color_system=None).print(power_page(loaded, power(loaded, SETTINGS, fired_rule)))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def test_golden_page():
    """Kept in power_page.txt; read every change to it before you keep it."""
    text = page(80)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("width", [60, 140])
def test_nothing_is_cut_at_other_widths(width):
    text = page(width)
    assert max(map(len, text.split("\n"))) <= width
    assert "…" not in text
    for part in ("notsimulated", "theplan's", "notation_kept"):
        assert part in "".join(text.split())


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (Share(0.0259, 0.0009, 10_000), "2.59% ± 0.09"),
        (Share(0.0263, 0.0036, 2000), "2.6% ± 0.4"),
        (Share(0.99983, 0.00013, 10_000), "99.98% ± 0.01"),
        (Share(0.0, 0.0, 10_000), "none (under 0.03%)"),
        (Share(1.0, 0.0, 100), "all (others under 3%)"),
        (None, "-"),
    ],
)
def test_shares_never_claim_more_than_was_simulated(share, text):
    assert share_text(share) == text


def sentence(tmp_path, table: str, effects: list[str]) -> str:
    loaded = load_plan(write_plan(tmp_path, with_table(table)))
    found = power(loaded, Settings(studies=200, effects=effects), fired_rule)
    return in_words(found.with_effects if effects else found.no_difference)


def test_the_sentence_of_a_table_with_one_label(tmp_path):
    said = sentence(tmp_path, RIGGED_TABLE, [])
    assert said == "If there were no difference at all, REPLICATED would come out, by luck alone, in all 200 simulated studies."
    said = sentence(tmp_path, RIGGED_TABLE, ["C.clean=-25"])
    assert said == "REPLICATED would come out in all 200 simulated studies."


def test_the_sentence_of_a_table_with_three_labels(tmp_path):
    said = sentence(tmp_path, OWN_TABLE, [])
    start, share = "If there were no difference at all, INCONCLUSIVE would come out in ", r"[\w\s.,%±()]+"
    last = f"NOT_REPLICATED would come out in {share}, and REPLICATED, by luck alone, in {share}"
    assert re.fullmatch(rf"{start}{share}, {last}", said)
