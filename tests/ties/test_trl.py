"""One step of TRL's GRPOTrainer and one update of an arm have the same gradient, up to the scale that the arm states.

Every test asserts both: the direction (cosine) and the scale (ratio of norms). R is the number of rollouts in the update.
"""

from __future__ import annotations

import numpy as np
import pytest

from ablation.plan.arms import Arm

from .conftest import GROUP, MAX_TOKENS, REWARDS, S0, Bench

pytestmark = pytest.mark.slow  # a real trainer each
R = GROUP * len(REWARDS)


def assert_tied(ours: np.ndarray, theirs: np.ndarray, scale: float, rel: float = 1e-4) -> None:
    cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
    assert cosine == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(ours) / np.linalg.norm(theirs) == pytest.approx(scale, rel=rel)


def response(weighting: str, **fields) -> Arm:
    return Arm(weighting=weighting, tokens="response", **fields)


def test_the_rollouts_tell_the_losses_apart(bench: Bench):
    lengths = np.array([len(ids) for ids in bench.tokens])
    assert 3 <= bench.truncated.sum() <= R // 2
    assert (lengths[bench.truncated] == MAX_TOKENS).all() and lengths.min() < 25
    gradients = [bench.ours(response(name)) for name in ("grpo", "dapo", "dr_grpo", "token")]
    directions = [one / np.linalg.norm(one) for one in gradients]
    cosines = [directions[a] @ directions[b] for a in range(4) for b in range(a)]
    assert sum(cosine < 0.999 for cosine in cosines) == 5  # dapo and dr_grpo differ by a constant within one update


@pytest.mark.parametrize("weighting", ["grpo", "dapo", "dr_grpo"])
def test_without_the_standard_deviation(bench: Bench, weighting: str):
    assert_tied(bench.ours(response(weighting)), bench.trl(loss_type=weighting, scale_rewards="none"), R * S0)


@pytest.mark.parametrize("weighting", ["grpo", "dapo", "dr_grpo"])
def test_with_the_standard_deviation(bench: Bench, weighting: str):
    # TRL divides by std + 1e-4, we by std: here the smallest std is 0.45, so the norms differ by at most 1e-4 / 0.45.
    theirs = bench.trl(loss_type=weighting, scale_rewards="group")
    assert_tied(bench.ours(response(weighting, scale="std")), theirs, R * S0, rel=3e-4)


def test_token_is_bnpo_with_one_group_in_each_micro_batch(bench: Bench):
    theirs = bench.trl(loss_type="bnpo", scale_rewards="none", groups_at_once=1)
    assert_tied(bench.ours(response("token")), theirs, R * S0)
    assert_tied(bench.ours(response("prompt_mean")), theirs, R * S0)


def test_dapo_is_bnpo_with_everything_in_one_micro_batch(bench: Bench):
    assert_tied(bench.ours(response("dapo")), bench.trl(loss_type="bnpo", scale_rewards="none"), R * S0)


def test_masked_truncated_rollouts(bench: Bench):
    kept = int((~bench.truncated).sum())
    # TRL's GRPO and Dr. GRPO go on dividing by all R rollouts; DAPO's divisor loses the masked tokens, so its R are the kept ones.
    for weighting, rollouts in (("grpo", R), ("dr_grpo", R), ("dapo", kept)):
        theirs = bench.trl(loss_type=weighting, scale_rewards="none", mask_truncated_completions=True)
        assert_tied(bench.ours(response(weighting, truncated="mask")), theirs, rollouts * S0)
        keep, mask = bench.ours(response(weighting)), bench.ours(response(weighting, truncated="mask"))
        assert keep @ mask / np.linalg.norm(keep) / np.linalg.norm(mask) < 0.999


@pytest.mark.parametrize("weighting", ["grpo", "dapo", "dr_grpo"])
def test_clip_with_ratios_away_from_one(bench: Bench, weighting: str):
    low, high = 0.1, 0.3
    old, now = bench.score(bench.start), bench.score(bench.moved)
    ratios = np.exp(np.concatenate(now) - np.concatenate(old))
    assert 0.05 < np.mean(ratios < 1 - low) < 0.5 and 0.005 < np.mean(ratios > 1 + high) < 0.5
    options = {"loss_type": weighting, "scale_rewards": "none", "move_to": bench.moved}
    theirs = bench.trl(epsilon=low, epsilon_high=high, **options)
    clipped = bench.ours(response(weighting, clip={"low": low, "high": high}), at=bench.moved, sampler=old)
    assert_tied(clipped, theirs, R * S0)
    free = bench.ours(response(weighting), at=bench.moved, sampler=old)
    assert_tied(free, bench.trl(epsilon=0.99999, epsilon_high=1e9, **options), R * S0)
    assert free @ clipped / np.linalg.norm(free) / np.linalg.norm(clipped) < 0.999


@pytest.mark.parametrize("weighting", ["grpo", "dapo", "dr_grpo"])
def test_k3_is_the_kl_term_without_bias_correction(bench: Bench, weighting: str):
    # The second step is made at the adapter `moved`, with itself as sampler (ratio 1); the reference is the start.
    old = bench.score(bench.start)
    arm = response(weighting, kl={"beta": 0.5, "estimator": "k3", "unit": "advantage"})
    options = {"loss_type": weighting, "scale_rewards": "none", "beta": 0.5}
    theirs = bench.trl(move_first=bench.moved, use_bias_correction_kl=False, **options)
    ours = bench.ours(arm, at=bench.moved, anchor=old)
    assert_tied(ours, theirs, R * S0)
    without = bench.ours(response(weighting), at=bench.moved)
    assert ours @ without / np.linalg.norm(ours) / np.linalg.norm(without) < 0.99


@pytest.mark.parametrize("weighting", ["grpo", "dapo", "dr_grpo"])
def test_k1_is_the_kl_term_with_bias_correction(bench: Bench, weighting: str):
    # TRL's default: ratio * k3. Its gradient, ratio * d, is that of our weight - beta * d, whatever the ratio is.
    old = bench.score(bench.start)
    arm = response(weighting, kl={"beta": 0.5, "estimator": "k1", "unit": "advantage"})
    options = {"loss_type": weighting, "scale_rewards": "none", "beta": 0.5, "epsilon": 0.99999, "epsilon_high": 1e9}
    assert_tied(bench.ours(arm, at=bench.moved, anchor=old), bench.trl(move_first=bench.moved, **options), R * S0)
    theirs = bench.trl(move_to=bench.moved, **options)  # sampled by the start: ratios away from 1
    assert_tied(bench.ours(arm, at=bench.moved, sampler=old, anchor=old), theirs, R * S0)


def test_leave_one_out_is_rloo(bench: Bench):
    # RLOO's loss is the mean over rollouts of A * (ratio of the whole response): for one step, A / R on every token.
    arm = response("dr_grpo", baseline="leave_one_out")
    assert_tied(bench.ours(arm), bench.trl(trainer="RLOO"), R * S0 / MAX_TOKENS)
