"""The reference page names every file, column and field that the program writes or reads."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from ablation.measures.bootstrap import REASONS
from ablation.measures.measure import measure
from ablation.plan.load import load_plan
from ablation.rollouts.schema import StageInfo
from ablation.rollouts.store import SCHEMA
from ablation.verdict.measures_file import MeasuresFile, Numbers, Ratios, Release
from ablation.verdict.measures_reader import load_measures
from ablation.verdict.reported import judge_reported
from tests.measures.build import outcomes

from .test_reported import FILES, TESSERA

PAGE = (Path(__file__).parents[2] / "runs" / "README.md").read_text()
NAMED = set(re.findall(r"`([A-Za-z0-9_.]+)`", PAGE))
EXAMPLE = PAGE.split("```yaml\n")[1].split("```")[0]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("columns", SCHEMA.names),
        ("stage settings", [field.name for field in fields(StageInfo)]),
        ("measures", list(measure(outcomes([("a", "low", 0, 1, 5, 9)])))),
        ("reasons", list(REASONS)),
        ("verdict", list(judge_reported(FILES / "study.yaml", TESSERA).as_json())),
        ("figures", [*Numbers.model_fields, *Ratios.model_fields, "deviation", "win", "reported"]),
    ],
)
def test_everything_is_named(what, names):
    assert [name for name in names if name not in NAMED] == []


def test_the_example_is_a_measures_file_with_every_field(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(EXAMPLE)
    found = load_measures(path, load_plan(Path(__file__).parents[2] / "plans" / "tessera.yaml").plan)
    assert [name for name in MeasuresFile.model_fields if f"{name}:" not in EXAMPLE] == []
    assert [name for name in Release.model_fields if f"{name}:" not in EXAMPLE] == []
    assert found.release.win == "held"
