"""What a plan has to be computed, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablation.plan.cost import cost
from ablation.plan.load import load_plan
from ablation.plan.prices import Tokens
from ablation.plan.work import Work, later, parts, sampling, total, training
from tests.plan.conftest import TEXT, write_plan

PLANS = Path(__file__).parents[2] / "plans"
RECORDS = Path(__file__).parents[2] / "runs" / "records"


@pytest.mark.parametrize("path", sorted([*PLANS.glob("*.yaml"), *RECORDS.glob("*/plan.yaml")]), ids=str)
def test_the_parts_are_the_whole(path):
    """As many rollouts and tokens as `cost` counts in another way."""
    plan = load_plan(path).plan
    bound = cost(plan)
    assert total(parts(plan)).rollouts == bound.rollouts
    assert total(parts(plan)).sampled == bound.tokens
    assert total(later(plan)).rollouts == bound.phase2_rollouts + bound.extension_rollouts


def test_the_study_by_hand():
    """348 rollouts a stage; 2 sweeps, 7 runs of updates and readout; XK is scored twice, and twice more as the arm that is
    trained again. Prompts of 512 tokens, rollouts of 32,768, both together 33,280."""
    plan = load_plan(PLANS / "tessera.yaml").plan
    found = parts(plan)
    assert [(part.family, part.name) for part in found] == [
        *(("main", name) for name in ("sweep", "C", "N", "X", "XP", "XK")),
        *(("replication", name) for name in ("sweep", "C", "first stable arm")),
    ]
    assert found[0].work == Work(348, 348 * 512, 348 * 32768)
    assert found[1].work == Work(696, 696 * 512, 696 * 32768, 0, 348 * 33280)
    assert found[5].work == found[8].work == Work(696, 696 * 512, 696 * 32768, 2 * 348 * 33280, 348 * 33280)
    whole = total(found).billed
    assert whole == Tokens(prefill=5568 * 512 + 4 * 348 * 33280, sample=5568 * 32768, train=7 * 348 * 33280)
    assert whole == Tokens(49_176_576, 182_452_224, 81_070_080)


def test_what_follows_the_study_by_hand():
    """Ten more updates take every cell twice: 696 rollouts, trained on, and scored twice if it is XK; three checks of 348. The sets
    are 1,264 rollouts."""
    extension, sets = later(load_plan(PLANS / "tessera.yaml").plan)
    assert extension.updates == Work(696, 696 * 512, 696 * 32768, 2 * 696 * 33280, 696 * 33280)
    assert extension.stages == sampling(3 * 348, 512, 32768)
    assert sets.work == sampling(1264, 512, 32768)


def test_a_mean_length_in_place_of_the_cap(tmp_path):
    plan = load_plan(write_plan(tmp_path)).plan
    assert parts(plan, prompt=10, length=33.5)[0].work == Work(348, 3480, 11658)
    assert parts(plan, prompt=10, length=33.5)[1].updates == Work(348, 3480, 11658, 0, 348 * 10 + 11658)


@pytest.mark.parametrize(
    ("arm", "scored", "trained"),
    [
        ("{weighting: rollout}", 0, 1),
        ("{weighting: rollout, clip: {low: 0.2, high: 0.2}}", 1, 1),
        ("{weighting: rollout, kl: {beta: 0.1}}", 2, 1),
        ("{weighting: rollout, kl: {beta: 0.1}, clip: {low: 0.2, high: 0.2}}", 2, 1),
        ("{external: {command: [train], each: update}}", 0, 0),
    ],
)
def test_what_an_arm_is_scored_for(tmp_path, arm, scored, trained):
    """As `training.batch.weigh_update` asks for it: the trainer for a clip or a KL term, the start for a KL term."""
    plan = load_plan(write_plan(tmp_path, TEXT.replace("N: {weighting: rollout}", f"N: {arm}"))).plan
    found = training(plan.arms["N"], 10, 5, 20)
    assert found == Work(10, 50, 200, scored * 250, trained * 250)


def test_an_arm_that_a_command_trains_as_a_whole_is_only_read_out(tmp_path):
    plan = load_plan(
        write_plan(tmp_path, TEXT.replace("N: {weighting: rollout}", "N: {external: {command: [t], each: arm}}"))
    ).plan
    assert parts(plan)[2].work == sampling(348, 512, 200)
