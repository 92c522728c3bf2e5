"""`ablation plan power` on the quickstart plan: 10,000 whole studies on one core, measured in the process's own CPU time."""

from __future__ import annotations

import time
from pathlib import Path

from ablation.cli.plan_power import luck_before_lock
from ablation.plan.load import load_plan
from ablation.power.power import power
from ablation.power.settings import Settings
from ablation.training.stops import fired_rule

from .row import Row

PLAN = Path(__file__).parents[2] / "plans" / "quickstart.yaml"
STUDIES, LIMIT, LOCK_LIMIT = 10_000, 10.0, 2.0


def cpu_seconds(run) -> float:
    """Of all threads together, so that more than one core is no help."""
    began = time.process_time()
    run()
    return time.process_time() - began


def rows() -> list[Row]:
    loaded = load_plan(PLAN)
    found = []
    for what, effects in (("no difference", []), ("no difference and effects", ["C.clean=-25", "C.logprob=-0.2"])):
        seconds = cpu_seconds(lambda effects=effects: power(loaded, Settings(studies=STUDIES, effects=effects), fired_rule))
        found.append(Row(f"plan power, {STUDIES:,} studies, {what}", f"{seconds:.1f} s CPU", f"<= {LIMIT:g} s", seconds <= LIMIT))
    seconds = cpu_seconds(lambda: luck_before_lock(loaded))
    found.append(Row("luck summary of plan lock", f"{seconds:.2f} s CPU", f"<= {LOCK_LIMIT:g} s", seconds <= LOCK_LIMIT))
    return found
