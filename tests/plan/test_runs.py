"""The list of runs, by hand: arms C, N, XK; the replication's family is the third in the plan."""

import pytest
import yaml

from ablation.plan.cost import cost
from ablation.plan.load import load_plan
from ablation.plan.runs import families_of, perhaps_again, planned_runs, runs_for_claims
from ablation.plan.work import parts
from tests.plan.conftest import TEXT, write_plan

CLAIM = {"subjects": ["N"], "reference": "C", "measure": "clean", "side": "greater", "method": "welch"}
MAIN = [("main", arm) for arm in ("C", "N", "XK")]


def plan_with(tmp_path, **claims):
    tree = yaml.safe_load(TEXT)
    tree["families"] = {name: {"seed": seed} for seed, name in enumerate(("main", "s3", "replication", "s4"))}
    tree["verdict"]["claims"] = {name: CLAIM | fields for name, fields in claims.items()}
    return load_plan(write_plan(tmp_path, yaml.safe_dump(tree, sort_keys=False))).plan


def test_without_claims(tmp_path):
    plan = plan_with(tmp_path)
    assert planned_runs(plan) == [*MAIN, ("replication", "C")]
    assert planned_runs(plan, "XK") == [*MAIN, ("replication", "C"), ("replication", "XK")]
    assert perhaps_again(plan) == ["N", "XK"] and runs_for_claims(plan) == {}


def test_claims_and_what_is_on_disk(tmp_path):
    plan = plan_with(
        tmp_path, a={"families": ["s3", "replication"]}, b={"subjects": ["XK"], "reference": "start", "families": ["main", "s3"]}
    )
    wanted = [*MAIN, ("replication", "C"), ("replication", "N"), ("s3", "C"), ("s3", "N"), ("s3", "XK")]
    assert planned_runs(plan) == planned_runs(plan, "N") == wanted
    assert families_of(planned_runs(plan)) == ["main", "replication", "s3"]
    there = {("s4", "C"), ("replication", "XK"), ("main", "C")}
    found = planned_runs(plan, also=lambda *run: run in there)
    assert found == [*wanted[:5], ("replication", "XK"), *wanted[5:], ("s4", "C")]
    assert perhaps_again(plan) == ["XK"] and runs_for_claims(plan) == {"replication": ["N"], "s3": ["C", "N", "XK"]}


@pytest.mark.parametrize(("subjects", "runs"), [(["N", "XK"], 12), (["N"], 10)])
def test_no_run_is_counted_twice(tmp_path, subjects, runs):
    """Claims in three families beside the first. Of N and XK: 3 arms x 4 families. Of N alone: 3, in the replication's C, N and
    perhaps XK, and C and N in two more."""
    plan = plan_with(tmp_path, a={"subjects": subjects, "families": ["main", "s3", "replication", "s4"]})
    sweep = plan.sweep_rollouts
    assert cost(plan).readout_rollouts == cost(plan).training_rollouts == runs * sweep
    found = parts(plan)
    assert [one.name for one in found].count("sweep") == 4 and len(found) == runs + 4
    assert ("first stable arm" in [one.name for one in found]) == (subjects == ["N"])
    assert sum(one.work.rollouts for one in found) == (2 * runs + 4) * sweep
