"""Simulated shares against exact ones, and every simulated study against the verdict's own judges."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom

from ablation.plan.load import parse_plan
from ablation.power.decide import CONTROL_FIRST, CONTROL_SECOND, NO_STABLE_ARM, NOT_STABLE_AGAIN
from ablation.power.kinds import MEMBERS
from ablation.power.rates import Mean, assumed_pool, assumed_rates
from ablation.power.simulate import BLOCK, Model, block_size, simulate
from ablation.power.stages import Luck, counts
from ablation.power.summary import Share
from ablation.verdict.labels import judge_damage, replication
from ablation.verdict.rules import Figures
from tests.plan.conftest import TEXT, write_plan

from .exact import at_most, beta_binomial_difference, binomial_difference

POOL = assumed_pool(correct=0.6, truncated=0.13, looping=0.05, looping_truncated=0.8)


def model(concentration=np.inf, **changes) -> Model:
    return Model(assumed_rates(POOL, 58, 6, concentration, Mean(None, 0.2, 0.1)), **changes)


def near(share: Share, exact: float) -> bool:
    """Within four standard errors: one honest failure in 16,000."""
    return abs(share.value - exact) < 4 * max(share.se, 1 / share.studies)


def test_clean_lost_against_the_exact_convolution_of_binomials(quickstart):
    """21 or more of 348 lost, every rollout clean with probability 0.6 in both stages."""
    exact = at_most(binomial_difference(348, 0.6), -21)
    assert exact == pytest.approx(0.0562, abs=0.0003)  # normal with continuity: Phi(-20.5 / sqrt(2 * 348 * .24)) = 0.0563
    found = simulate(quickstart.plan, model(), {}, 5_000, seed=1)
    assert near(Share.of(found.fired_SAR[:, 0, 0]), exact)
    assert near(Share.of(found.fired_again[0][:, 0]), exact)


def test_rates_that_differ_between_cells_against_the_exact_beta_binomial(quickstart):
    """Equal models on unequal cells differ less: the shared rates of the cells cancel."""
    exact = at_most(beta_binomial_difference(58, 6, 0.6, 2.0), -21)
    assert exact < at_most(binomial_difference(348, 0.6), -21) / 2
    looping = 1 - at_most(beta_binomial_difference(58, 6, 0.05, 2.0), 11)
    found = simulate(quickstart.plan, model(2.0), {}, 5_000, seed=2)
    assert near(Share.of(found.fired_SAR[:, :, 0]), exact)
    assert near(Share.of(found.fired_SAR[:, :, 2]), looping)


def test_shared_luck_correlates_each_rollout_with_its_partner(quickstart):
    found = simulate(quickstart.plan, model(correlation=0.5), {}, 5_000, seed=3)
    for name in (*MEMBERS, "logprob"):
        assert np.corrcoef(found.sweeps[0][name], found.arms[0][name])[0, 1] == pytest.approx(0.5, abs=0.05), name
    same = simulate(quickstart.plan, model(correlation=1.0), {}, BLOCK + 1, seed=3)
    assert np.array_equal(same.sweeps[0]["clean"], same.arms[1]["clean"])
    assert np.array_equal(same.sweeps[1]["clean"], same.again[1]["clean"])
    assert not np.array_equal(same.sweeps[0]["clean"], same.sweeps[1]["clean"])


def test_logprob_against_the_normal_distribution(quickstart):
    """A stage's mean of 348 rollouts with sd 2 has sd 0.1072; a loss of 0.15 is 0.989 sd of the difference: 16.1%."""
    own = Model(assumed_rates(POOL, 58, 6, np.inf, Mean(None, 2.0, 0.0)))
    found = simulate(quickstart.plan, own, {}, 5_000, seed=4)
    assert near(Share.of(found.fired_SAR[:, 0, 3]), 0.1613)


@pytest.mark.parametrize(
    ("effects", "spread", "correlation"),
    [
        ({}, {}, 0.0),
        ({"C": {"clean": -25.0, "logprob": -0.2}}, {}, 0.0),
        ({"C": {"clean": -20.0}, "N": {"clean": -20.0}, "X": {"truncated": 15.0}, "XP": {"clean": -30.0}}, {"clean": 12.0}, 0.3),
    ],
)
def test_every_study_has_the_label_and_reasons_of_the_verdict(quickstart, effects, spread, correlation):
    plan, first, second, control = quickstart.plan, "main", "replication", "C"
    found = simulate(plan, model(2.0, spread=spread, correlation=correlation), effects, 400, seed=5)
    seen = Counter()
    for study in range(400):

        def one(measures, study=study) -> dict:
            return {name: values[study].item() for name, values in measures.items()}

        def verdict_of(family, arm, one=one, study=study):
            again = list(plan.arms)[found.stable[study]] if found.stable[study] >= 0 else None
            if family == first:
                subject = found.arms[list(plan.arms).index(arm)]
            else:
                assert arm in (control, again), "the verdict asks for another arm than the simulation replicated"
                subject = found.again[arm != control]
            return judge_damage(family, arm, plan.verdict.damage, Figures(one(subject), one(found.sweeps[family == second])))

        real = replication(plan, verdict_of)
        assert real.label == ("REPLICATED" if found.decision.replicated[study] else "NOT_REPLICATED")
        mine = {name for name, values in found.decision.reasons.items() if values[study]}
        codes = sorted(reason.code for reason in real.reasons)
        assert codes == (sorted(name.split()[0] for name in mine) or ["CONTRAST_HELD_TWICE"])
        assert (CONTROL_FIRST in mine) == any("not damaged in main" in reason.text for reason in real.reasons)
        seen.update(mine or ["replicated"])
    if effects:
        assert seen["replicated"] > 10
    if spread:
        assert {CONTROL_FIRST, CONTROL_SECOND, NO_STABLE_ARM, NOT_STABLE_AGAIN} <= seen.keys()


def test_labels_against_their_exact_probability(tmp_path):
    """Three arms, one rule (5 or more clean lost of 348), equal cells. Given the sweep's count the arms are independent, and so are the
    families: P(REPLICATED) = E[q (1 - q^2)] * E[q (1 - q)], where q is the chance of an arm to be damaged given the sweep."""
    rule = '    - {name: logprob_lost, measure: logprob, compare: change, op: "<=", limit: -0.15}\n'
    assert rule in TEXT
    plan = parse_plan(write_plan(tmp_path), TEXT.replace(rule, "").replace("limit: -21", "limit: -5").encode()).plan
    sweep = np.arange(349)
    weight, q = binom.pmf(sweep, 348, 0.6), binom.cdf(sweep - 5, 348, 0.6)
    first, second = (weight * q * (1 - q**2)).sum(), (weight * q * (1 - q)).sum()
    found = simulate(plan, model(), {}, 10_000, seed=11)
    assert near(Share.of(found.decision.replicated), first * second)
    none_stable = found.decision.reasons[NO_STABLE_ARM]
    assert near(Share.of(none_stable), (weight * q**2).sum())
    assert near(Share.of(found.decision.reasons[NOT_STABLE_AGAIN]), (weight * (1 - q**2)).sum() * (weight * q).sum())
    # damage of two arms against one sweep is not independent: taking it as such would be far off
    assert abs(none_stable.mean() - (weight * q).sum() ** 2) > 0.05


def test_large_plans_are_simulated_in_small_blocks():
    assert (block_size(24), block_size(348), block_size(40_000), block_size(10**6)) == (BLOCK, BLOCK, 2, 1)


def test_effects_move_the_expected_counts_by_what_they_say(quickstart):
    effects = {
        "C": {"clean": -25.0, "logprob": -0.2},
        "N": {"truncated": 18.0},
        "X": {"looping": 20.0, "clean": 10.0},
        "XP": {"truncated": -20.0, "clean": 0.0},
    }
    found = simulate(quickstart.plan, model(2.0), effects, 4000, seed=6)
    change = {
        arm: {name: (own[name] - found.sweeps[0][name]).mean() for name in own}
        for arm, own in zip(quickstart.plan.arms, found.arms, strict=True)
    }
    sharp = {"abs": 0.8}  # about four standard errors of a change
    assert change["C"]["clean"] == pytest.approx(-25, **sharp)
    assert change["C"]["truncated_or_looping"] == pytest.approx(0, **sharp)
    assert change["C"]["logprob"] == pytest.approx(-0.2, abs=0.001)
    assert change["N"]["truncated"] == pytest.approx(18, **sharp)
    assert change["N"]["clean"] == pytest.approx(-18 * 0.6 / 0.87, **sharp)  # 0.6 of the 0.87 that can run into the cap
    assert change["N"]["no_answer"] == pytest.approx(18, **sharp)
    assert change["X"]["looping"] == pytest.approx(20, **sharp)
    assert change["X"]["clean"] == pytest.approx(10, **sharp)
    assert change["XP"]["truncated"] == pytest.approx(-20, **sharp)
    assert change["XP"]["clean"] == pytest.approx(0, **sharp)
    assert change["XK"] == pytest.approx(dict.fromkeys(change["XK"], 0), **sharp)
    assert found.cut < 0.001  # hardly any study drew rates into which an effect did not fit


def test_the_replicated_arm_has_its_own_effect(quickstart):
    """N is always damaged and XP gains 40 clean ones, so X is replicated; its truncated rollouts rise in the second family, too."""
    effects = {"N": {"clean": -120.0}, "X": {"truncated": 9.0}, "XP": {"clean": 40.0}}
    found = simulate(quickstart.plan, model(), effects, 2000, seed=7)
    rows = found.stable == 2
    assert rows.mean() > 0.7
    assert (found.again[1]["truncated"] - found.sweeps[1]["truncated"])[rows].mean() == pytest.approx(9, abs=1)


def test_training_seeds_spread_the_runs(quickstart):
    """Variance of a change: 2 * 348 * 0.24 of sampling (both stages) plus 15^2 of the training seed."""
    found = simulate(quickstart.plan, model(spread={"clean": 15.0, "logprob": 0.1}), {}, 8000, seed=8)
    changes = found.arms[0]["clean"] - found.sweeps[0]["clean"]
    assert changes.std() == pytest.approx(np.sqrt(2 * 348 * 0.24 + 225), rel=0.03)
    assert changes.mean() == pytest.approx(0, abs=1)
    assert (found.arms[0]["logprob"] - found.sweeps[0]["logprob"]).std() == pytest.approx(
        np.hypot(0.1, 0.2 * np.sqrt(2 / 348)), rel=0.04
    )
    assert abs(np.corrcoef(changes, found.arms[1]["logprob"] - found.sweeps[0]["logprob"])[0, 1]) < 0.05


def test_the_same_arguments_give_the_same_studies_and_more_of_them_begin_alike(quickstart):
    one, other = (simulate(quickstart.plan, model(2.0), {}, number, seed=9) for number in (BLOCK, 2 * BLOCK + 3))
    assert len(other.stable) == 2 * BLOCK + 3
    assert np.array_equal(one.arms[2]["clean"], other.arms[2]["clean"][:BLOCK])
    assert not np.array_equal(one.arms[2]["clean"], simulate(quickstart.plan, model(2.0), {}, BLOCK, seed=10).arms[2]["clean"])


def test_counts_of_kinds_by_hand():
    """Two rollouts of one cell; rates: 0.5 clean, 0.25 finished and wrong, 0.25 truncated and looping."""
    rates = np.zeros((4, 1, 12))
    rates[..., [0, 1, 11]] = (0.5, 0.25, 0.25)
    luck = np.array([[[0.0, 0.49]], [[0.5, 0.74]], [[0.75, 0.99]], [[0.2, 0.9]]], dtype=np.float32)
    found = counts(rates, luck)
    assert found.tolist() == [[2, 2, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 2, 2, 2, 2], [1, 1, 1, 1, 1, 1]]


def test_luck_is_uniform(quickstart):
    luck = Luck.draw(model().rates, 50, np.random.default_rng(0)).rollouts_BKn
    assert luck.shape == (50, 58, 6)
    assert luck.mean() == pytest.approx(0.5, abs=0.01)
    assert 0 <= luck.min() < luck.max() < 1
