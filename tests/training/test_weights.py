import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.plan.arms import Arm, Clip, KLAnchor
from ablation.plan.weightings import WEIGHTINGS
from ablation.training import weights as module
from ablation.training.weights import Logprobs, RolloutBatch

S0, CAP = 100.0, 200


def token_weights(arm, rollouts, change=None):
    """`change` is logp - logp_start of every token."""
    logprobs = None if change is None else Logprobs(trainer=change, start=[np.zeros_like(one) for one in change])
    return module.token_weights(arm, rollouts, S0, CAP, logprobs)


def batch(rewards, truncated, weighted_lengths, answer=2):
    """One cell; each rollout is its weighted tokens, then `answer` visible tokens (none if truncated)."""
    weighted = np.array(weighted_lengths)
    truncated = np.array(truncated)
    return RolloutBatch(
        cells=["p@low"] * len(weighted),
        rewards_R=np.array(rewards, dtype=float),
        truncated_R=truncated,
        lengths_R=weighted + np.where(truncated, 0, answer),
        weighted_start_R=np.zeros(len(weighted), dtype=int),
        weighted_length_R=weighted,
        entropy=[np.arange(length) / 100 for length in weighted + np.where(truncated, 0, answer)],
    )


# Rewards 1, 0, 0 have the mean 1/3: advantages 2/3, -1/3, -1/3. Lengths 10, 20, 60 have the mean 30.
GROUP = batch([1, 0, 0], [False, False, True], [10, 20, 60])


def test_token_weighting_by_hand():
    weights = token_weights(Arm(weighting="token"), GROUP).tokens
    assert weights[0][:10] == pytest.approx([2 / 3 * 100 / 30] * 10)
    assert weights[0][10:].tolist() == [0.0, 0.0]  # never on the visible answer
    assert weights[2] == pytest.approx([-1 / 3 * 100 / 30] * 60)
    assert [part.sum() for part in weights] == pytest.approx([22.2222222, -22.2222222, -66.6666667])  # grows with length
    assert sum(part.sum() for part in weights) < 0  # long failures make the net weight negative


def test_per_rollout_weighting_by_hand():
    weights = token_weights(Arm(weighting="rollout"), GROUP).tokens
    assert [part.sum() for part in weights] == pytest.approx([66.6666667, -33.3333333, -33.3333333])
    assert weights[1][0] == pytest.approx(-1 / 3 * 100 / 20)
    assert sum(part.sum() for part in weights) == pytest.approx(0.0, abs=1e-12)


def test_truncated_apart_leaves_baseline_and_loss():
    weights = token_weights(Arm(weighting="rollout", truncated="apart"), GROUP).tokens
    assert [part.sum() for part in weights] == pytest.approx([50.0, -50.0, 0.0])  # baseline of 1 and 0 alone
    assert not weights[2].any()


def test_token_weighting_apart_takes_the_mean_length_of_the_kept():
    weights = token_weights(Arm(weighting="token", truncated="apart"), GROUP).tokens
    assert weights[0][0] == pytest.approx(0.5 * 100 / 15)


def test_finishing_push_makes_the_net_weight_positive():
    weights = token_weights(Arm(weighting="rollout", truncated="apart", finish_push=0.1), GROUP).tokens
    assert [part.sum() for part in weights] == pytest.approx([60.0, -40.0, -10.0])
    assert sum(part.sum() for part in weights) == pytest.approx(10.0)


def test_kl_anchor_is_added_to_each_weighted_token():
    change = [np.full(12, 0.5), np.full(22, -0.2), np.zeros(60)]
    found = token_weights(Arm(weighting="rollout", kl=KLAnchor(beta=0.1)), GROUP, change)
    assert found.kl[0][:10] == pytest.approx([-0.05] * 10)  # more likely than at the start: pulled back
    assert found.kl[0][10:].tolist() == [0.0, 0.0]
    assert found.kl[1][:20] == pytest.approx([0.02] * 20)
    assert found.tokens[0][0] == pytest.approx(2 / 3 * 10 - 0.05)


@pytest.mark.parametrize("truncated", ["keep", "apart"])
@pytest.mark.parametrize("noise", [0.0, 1e-17, 3e-9])
def test_how_many_tokens_have_a_weight_does_not_depend_on_the_last_bits_of_logprobs(truncated, noise):
    """The second cell has no signal: there the anchor alone holds, and whether its pull is 0 is for rounding to say."""
    rewards, cut = [1.0, 0.0, 0.0, 1.0, 1.0], [False, False, True, False, False]
    group = dataclasses.replace(batch(rewards, cut, [10, 20, 60, 5, 7]), cells=["p@low"] * 3 + ["q@low"] * 2)
    change = [np.where(np.arange(length) % 3 == 0, noise, 0.0) for length in group.lengths_R]
    arm = Arm(weighting="rollout", truncated=truncated, kl=KLAnchor(beta=0.1))
    found = token_weights(arm, group, change)
    apart = truncated == "apart"
    assert found.weighted_R.tolist() == [10, 20, 0 if apart else 60, 0, 0]
    assert found.anchored_R.tolist() == [10, 20, 0 if apart else 60, 5, 7]
    assert np.count_nonzero(found.tokens[3]) == (2 if noise else 0)
    without = token_weights(Arm(weighting="rollout", truncated=truncated), group)
    assert (without.weighted_R.tolist(), without.anchored_R.tolist()) == (found.weighted_R.tolist(), [0] * 5)


def test_kl_anchor_is_zero_at_the_start():
    zero = [np.zeros(12), np.zeros(22), np.zeros(60)]
    anchored = token_weights(Arm(weighting="rollout", kl=KLAnchor(beta=0.1)), GROUP, zero).tokens
    plain = token_weights(Arm(weighting="rollout"), GROUP).tokens
    assert all(np.array_equal(one, other) for one, other in zip(anchored, plain, strict=True))


def test_positive_only_with_a_kl_term_that_can_only_damp():
    arm = Arm(weighting="rollout", advantages="positive", kl=KLAnchor(beta=1.0, damp_only=True))
    change = [np.array([0.5] * 5 + [-3.0] * 4 + [99.0] + [0.0] * 2), np.full(22, 5.0), np.full(60, 5.0)]
    weights = token_weights(arm, GROUP, change).tokens
    assert weights[0][:5] == pytest.approx([20 / 3 - 0.5] * 5)  # damped
    assert weights[0][5:9] == pytest.approx([20 / 3] * 4)  # never grown
    assert weights[0][9] == 0.0  # never turned
    assert not weights[1].any() and not weights[2].any()


def test_an_anchor_without_logprobs_is_a_bug():
    with pytest.raises(ValueError, match="logp"):
        token_weights(Arm(weighting="rollout", kl=KLAnchor(beta=0.1)), GROUP)


def test_equal_rewards_and_empty_rollouts_have_no_weight():
    silent = token_weights(Arm(weighting="rollout"), batch([0.3] * 4, [False] * 4, [5, 6, 7, 8]))
    assert silent.no_signal == ["p@low"] and not any(part.any() for part in silent.tokens)
    empty = token_weights(Arm(weighting="rollout"), batch([1.0, 0.0], [False, False], [4, 0]))
    assert not empty.tokens[1].any() and np.isfinite(empty.tokens[0]).all()


groups = st.integers(2, 8).flatmap(
    lambda size: st.tuples(
        st.lists(st.floats(0, 1.3), min_size=size, max_size=size),
        st.lists(st.booleans(), min_size=size, max_size=size),
        st.lists(st.integers(1, 400), min_size=size, max_size=size),
    )
)


@given(groups, st.sampled_from(["keep", "apart"]))
def test_per_rollout_weights_always_net_to_zero(group, handling):
    found = token_weights(Arm(weighting="rollout", truncated=handling), batch(*group))
    absolute = sum(np.abs(part).sum() for part in found.tokens)
    assert sum(part.sum() for part in found.tokens) == pytest.approx(0.0, abs=1e-9 * max(absolute, 1.0))


@given(groups)
def test_weights_do_not_depend_on_the_order_of_rollouts(group):
    order = list(range(len(group[0])))[::-1]
    turned = [[column[i] for i in order] for column in group]
    for weighting in ("token", "rollout"):
        one = token_weights(Arm(weighting=weighting), batch(*group)).tokens
        other = token_weights(Arm(weighting=weighting), batch(*turned)).tokens
        for place, row in enumerate(order):
            assert other[place] == pytest.approx(one[row], rel=1e-12, abs=1e-12)


def test_masked_rollouts_stay_in_the_baseline_and_leave_the_divisor():  # E02: 100 kept tokens beside 1,000 that are masked
    two = batch([1, 0], [False, True], [100, 1000])
    alone = token_weights(Arm(weighting="dapo", truncated="mask"), two).tokens
    assert alone[0][:100] == pytest.approx([0.5 * 100 / 100] * 100)
    assert not alone[1].any()


def test_an_update_of_masked_rollouts_alone_has_no_weight_and_no_nan():
    for weighting in WEIGHTINGS:
        found = token_weights(Arm(weighting=weighting, truncated="mask"), batch([1, 0], [True, True], [5, 9])).tokens
        assert [part.tolist() for part in found] == [[0.0] * 5, [0.0] * 9]


def test_a_dropped_group_leaves_divisors_push_and_anchor():
    silent = batch([1, 1], [False, False], [40, 40])
    both = RolloutBatch(
        cells=[*GROUP.cells, "q@low", "q@low"],
        rewards_R=np.concatenate([GROUP.rewards_R, silent.rewards_R]),
        truncated_R=np.concatenate([GROUP.truncated_R, silent.truncated_R]),
        lengths_R=np.concatenate([GROUP.lengths_R, silent.lengths_R]),
        weighted_start_R=np.zeros(5, dtype=int),
        weighted_length_R=np.concatenate([GROUP.weighted_length_R, silent.weighted_length_R]),
    )
    dropped = token_weights(Arm(weighting="dapo", no_signal="drop"), both)
    assert dropped.tokens[0][0] == pytest.approx(2 / 3 * 100 / 30)  # Lbar of 10, 20, 60
    assert token_weights(Arm(weighting="dapo"), both).tokens[0][0] == pytest.approx(2 / 3 * 100 / 34)
    assert dropped.no_signal == ["q@low"]
    change = [np.full(length, 0.5) for length in both.lengths_R]
    pushed = Arm(weighting="rollout", no_signal="drop", finish_push=0.5, kl=KLAnchor(beta=0.1))
    assert not token_weights(pushed, both, change).tokens[3].any()


def test_clipped_tokens_lose_their_advantage_and_keep_the_anchor():
    sampler = [np.zeros(length) for length in GROUP.lengths_R]
    moved = [np.log(np.full(length, 1.5)) for length in GROUP.lengths_R]
    arm = Arm(weighting="rollout", clip=Clip(), kl=KLAnchor(beta=0.1))
    rollouts = dataclasses.replace(GROUP, sampler_logprobs=sampler)
    found = module.token_weights(arm, rollouts, S0, CAP, Logprobs(trainer=moved, start=sampler))
    assert found.clipped_R.tolist() == [10, 0, 0]  # positive weights above 1.2; negative ones count there
    assert found.tokens[0][:10] == pytest.approx([-0.1 * np.log(1.5)] * 10)
    assert found.tokens[1][0] == pytest.approx(-1 / 3 * 100 / 20 - 0.1 * np.log(1.5))


def test_a_weighting_may_tell_the_tokens_of_one_rollout_apart():
    """90 weighted tokens, of which the 18 with the highest entropy count: those from 0.42 nats on, all in the third rollout."""
    change = [np.full(length, 0.5) for length in GROUP.lengths_R]
    arm = Arm(weighting="high_entropy", finish_push=0.1, kl=KLAnchor(beta=0.1, unit="advantage"))
    found = token_weights(arm, GROUP, change)
    assert found.tokens[2].tolist() == pytest.approx([-10 / 60] * 42 + [(-1 / 3 - 0.05) * 100 / 30 - 10 / 60] * 18)
    assert found.tokens[0].tolist() == pytest.approx([10 / 10] * 10 + [0.0] * 2)  # the push alone, and never the answer
    assert found.kl[2].tolist() == pytest.approx([0.0] * 42 + [-0.05 * 100 / 30] * 18)


def test_entropies_are_those_of_the_weighted_tokens():
    """The first rollout's thinking begins at token 3: its entropies there are 0.03, 0.04, ..."""
    rollouts = dataclasses.replace(GROUP, weighted_start_R=np.array([2, 0, 0]))
    seen, _, _ = module.count_rollouts(Arm(weighting="token"), rollouts, S0, CAP)
    assert seen.entropy[0].tolist() == pytest.approx(np.arange(2, 12) / 100)
    assert [len(own) for own in seen.entropy] == [10, 20, 60]


def test_a_beta_in_units_of_advantage_is_spread_as_the_weighting_spreads():
    change = [np.full(12, 0.5), np.full(22, 0.5), np.full(60, 0.5)]
    found = token_weights(Arm(weighting="grpo", kl=KLAnchor(beta=0.1, unit="advantage")), GROUP, change)
    assert [part[0] for part in found.kl] == pytest.approx([-0.05 * 100 / 10, -0.05 * 100 / 20, -0.05 * 100 / 60])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("estimator", ["k1", "k3"])
@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("where", ["trainer", "start", "both"])
def test_a_logprob_that_is_no_number_is_in_the_weights_and_nowhere_else(estimator, value, where):
    """The update must see and name it; until then it is arithmetic and no warning on a terminal."""
    trainer, start = ([np.full(length, -1.0) for length in GROUP.lengths_R] for _ in range(2))
    for own in (trainer, start) if where == "both" else (trainer,) if where == "trainer" else (start,):
        own[1][3] = value
    arm = Arm(weighting="rollout", clip=Clip(), kl=KLAnchor(beta=0.1, estimator=estimator))
    rollouts = dataclasses.replace(GROUP, sampler_logprobs=[np.full(length, -1.0) for length in GROUP.lengths_R])
    found = module.token_weights(arm, rollouts, S0, CAP, Logprobs(trainer=trainer, start=start))
    finite = [np.isfinite(own) for own in found.tokens]
    assert finite[0].all() and finite[2].all() and finite[1][:3].all() and finite[1][4:].all()
    if where == "both":
        assert np.isnan(found.tokens[1][3])


def test_the_library_has_the_arms_of_the_study():
    for name, fields in {
        "C": {"weighting": "token"},
        "N": {"weighting": "rollout"},
        "X": {"weighting": "rollout", "truncated": "apart"},
        "XP": {"weighting": "rollout", "truncated": "apart", "finish_push": 0.1},
        "XK": {"weighting": "rollout", "truncated": "apart", "kl": KLAnchor(beta=0.05)},
        "P": {"weighting": "rollout", "advantages": "positive", "kl": KLAnchor(beta=0.05, damp_only=True)},
    }.items():
        assert Arm.model_validate({"library": name, "note": None}) == Arm(**fields)
