from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ablation.plan.cost import base_bytes, cost, default_flops, update_sizes
from ablation.plan.load import load_plan, parse_plan
from tests.plan.conftest import TEXT, write_plan

PLANS = Path(__file__).parents[2] / "plans"


def test_the_study():
    """By hand: 2 sweeps and 7 runs of 5 updates (348 rollouts) and a readout (348); 144 rollouts twice in two stages."""
    plan = load_plan(PLANS / "tessera.yaml").plan
    bound = cost(plan)
    assert (bound.sweep_rollouts, bound.training_rollouts, bound.readout_rollouts) == (696, 2436, 2436)
    assert bound.rollouts == 5568
    # held-out 144, never-used 144, main 236 of each of two models; two checkpoints on 54, each with its start
    assert bound.phase2_rollouts == 2 * (144 + 144 + 236) + 4 * 54
    assert bound.tokens == 182_452_224
    assert base_bytes(plan) == 55_600_000_000  # the size of the published bf16 weights, 55.6 GB


def test_time_by_hand(plan_path, plan_text):
    plan = parse_plan(plan_path, plan_text.replace("  XK: ", "  # ").encode()).plan  # C and N, both replicated
    bound = cost(plan)
    assert bound.rollouts == 2 * 348 + 4 * 696
    sampled, trained = bound.rollouts * 200, 4 * 348 * 200
    assert bound.seconds(plan.model.parameters, 1e9) == pytest.approx(1e6 * (2 * sampled + 4 * trained) / 1e9)
    assert default_flops(plan) == 1e10  # one thread by default


def test_58_cells_over_5_updates():
    assert update_sizes(58, 5) == [12, 12, 12, 11, 11]


@given(st.integers(1, 500), st.integers(1, 500))
def test_update_sizes(cells, updates):
    sizes = update_sizes(cells, updates)
    assert sum(sizes) == cells
    assert len(sizes) == updates
    assert max(sizes) - min(sizes) <= 1


def test_an_arm_that_a_command_trains_as_a_whole_has_no_rollouts_in_updates(plan_path, plan_text):
    plan_path.write_text(plan_text.replace("  N: {", "  W: {external: {command: [train], each: arm}}\n  N: {"))
    found = cost(load_plan(plan_path).plan)
    sweep = (19 + 19 + 20) * 6
    assert found.readout_rollouts == 6 * sweep  # C, W, N, XK; C and one more again
    assert found.training_rollouts == 5 * sweep  # all but W


def test_claims_over_three_families_by_hand(tmp_path):
    """58 cells x 6. C and N in a third family, N in the second for sure: three runs of 348 more in training and readout, one sweep."""
    before = cost(load_plan(write_plan(tmp_path, TEXT)).plan)
    tree = yaml.safe_load(TEXT)
    tree["families"]["third"] = {"seed": 3}
    claim = {"subjects": ["N"], "reference": "C", "measure": "clean", "side": "greater", "method": "welch"}
    tree["verdict"]["claims"] = {"cleaner": claim | {"families": ["main", "replication", "third"]}}
    after = cost(load_plan(write_plan(tmp_path, yaml.safe_dump(tree, sort_keys=False))).plan)
    assert after.sweep_rollouts - before.sweep_rollouts == 348
    assert after.training_rollouts - before.training_rollouts == after.readout_rollouts - before.readout_rollouts == 3 * 348
