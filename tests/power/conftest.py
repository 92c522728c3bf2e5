from __future__ import annotations

from pathlib import Path

import pytest

from ablation.plan.load import LoadedPlan, load_plan

PLANS = Path(__file__).parents[2] / "plans"


@pytest.fixture(scope="session")
def quickstart() -> LoadedPlan:
    return load_plan(PLANS / "quickstart.yaml")


@pytest.fixture(scope="session")
def tessera() -> LoadedPlan:
    return load_plan(PLANS / "tessera.yaml")
