from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from ablation.plan.load import load_plan
from ablation.report.plan_page import duration, plan_page, plan_summary
from tests.plan.conftest import write_plan

PLANS = Path(__file__).parents[2] / "plans"
GOLDEN = Path(__file__).parent / "plan_page.txt"


def page(path: Path, width: int = 80) -> str:
    loaded = load_plan(path)
    out = io.StringIO()
    summary = plan_summary(loaded, {"state": "not locked", "detail": None})
    Console(file=out, width=width, highlight=False, color_system=None).print(plan_page(loaded, summary))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def test_golden_page(tmp_path):
    """Kept in plan_page.txt; read every change to it before you keep it."""
    assert page(write_plan(tmp_path)) == GOLDEN.read_text()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_nothing_is_lost_or_cut_at_any_width(monkeypatch, tmp_path, width):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    text = page(PLANS / "tessera.yaml", width)
    assert max(map(len, text.split("\n"))) <= width
    assert "…" not in text
    packed = "".join(text.split())
    for part in (
        load_plan(PLANS / "tessera.yaml").digest if width >= 80 else "27001",
        "lost21ormorecleanrolloutsagainstthesweep",
        "hub:Qwen/Qwen3.8-27B@1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0" if width >= 140 else "hub:Qwen",
        "10of12pairspass",
        "182,452,224sampled",
        "5,568=696insweeps+2,436inupdates+2,436inreadouts",
    ):
        assert part in packed


def test_the_rate_is_stated_and_moves_the_estimate(tmp_path):
    loaded = load_plan(write_plan(tmp_path))
    state = {"state": "not locked", "detail": None}
    slow, fast = (plan_summary(loaded, state, flops)["cost"]["seconds_estimated"] for flops in (1e9, 1e12))
    assert slow == pytest.approx(1000 * fast)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(5, "5 seconds"), (90, "1.5 minutes"), (7200, "2 hours"), (259_200, "3 days"), (126_144_000, "4 years")],
)
def test_duration(seconds, words):
    assert duration(seconds) == words
