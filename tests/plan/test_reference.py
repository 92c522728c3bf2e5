from __future__ import annotations

from pathlib import Path

import pytest

from ablation.plan import measures
from ablation.plan.load import load_plan
from ablation.plan.reference import MARK, fill, sections, table

PLANS = Path(__file__).parents[2] / "plans"
README = (PLANS / "README.md").read_text()


def test_the_reference_is_up_to_date():
    plan = load_plan(PLANS / "tessera.yaml").plan
    assert fill(README, plan) == README, "run: python -m ablation.plan.reference plans/README.md plans/tessera.yaml"


def test_every_section_has_its_table_under_its_heading():
    assert [found[2] for found in MARK.finditer(README)] == list(sections())
    for name in sections():
        assert f"\n### {name}\n" in README


@pytest.mark.parametrize("name", list(sections()))
def test_every_field_has_a_meaning_and_an_example(name):
    section = sections()[name]
    rows = table(section, load_plan(PLANS / "tessera.yaml").plan).split("\n")[2:-1]
    assert len(rows) == len(section.model_fields)
    for row, field in zip(rows, section.model_fields, strict=True):
        cells = [cell.strip() for cell in row.replace(r"\|", "").split("|")[1:-1]]
        assert cells[0] == f"`{field}`"
        assert cells[4], f"{name}.{field} has no docstring"
        assert cells[3] not in ("`null`", "`[]`", "`{}`"), f"{name}.{field} has no example"


def test_every_measure_is_explained():
    for measure in measures.ALL:
        assert f"`{measure}`" in README


def test_lines_by_hand():
    assert "| `top_p` | number > 0 and <= 1 | `1.0` | `0.95` |" in README
    assert "| `s0` | number > 0 or `sweep` | `sweep` | `4790.0` |" in README
    assert "| `seed` | whole number >= 0 and < 2^63 | required | `27001` |" in README
    assert "| `limit` | number | required | `-21` |" in README
