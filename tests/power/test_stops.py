from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, hypergeom, norm

from ablation.plan.rules import StopRule
from ablation.power.kinds import kind
from ablation.power.rates import Mean, Rates, assumed_pool, assumed_rates
from ablation.power.stops import can_tell, ever_holds, stop_shares, unchanged_updates
from ablation.training.stops import fired_rule


def rule(measure, op, limit, compare="value") -> StopRule:
    return StopRule(name="r", measure=measure, compare=compare, op=op, limit=limit)


def test_share_of_unfinished_rollouts_against_the_binomial(quickstart):
    """60% truncated, equal cells: three updates of 12 cells (72 rollouts) and two of 11 (66)."""
    rates = assumed_rates(assumed_pool(0.3, 0.6, 0.0, 0.8), 58, 6, np.inf, Mean(None, 0.2, 0.1))
    own = rule("truncated_or_looping_share", ">=", 0.7)
    calm = np.prod([1 - binom.sf(np.ceil(0.7 * size) - 1, size, 0.6) for size in (72, 72, 72, 66, 66)])
    metrics = unchanged_updates(quickstart.plan, rates, 10_000, seed=1)
    found = ever_holds(own, metrics).mean()
    assert abs(found - (1 - calm)) < 4 * np.sqrt(calm * (1 - calm) / 10_000)


def test_unequal_cells_are_dealt_at_random(quickstart):
    """Half of the cells always run into the cap: update 1 has 8 or more of them among its 12 by the hypergeometric distribution."""
    parameters = np.zeros((58, 12))
    parameters[:29, kind(True, False, "none")] = parameters[29:, kind(False, False, "correct")] = 1
    rates = Rates(parameters, 6, np.inf, "made up", {})
    share = unchanged_updates(quickstart.plan, rates, 10_000, seed=5)["truncated_or_looping_share"]
    assert (share[:, 0] >= 0.6).mean() == pytest.approx(hypergeom.sf(7, 58, 29, 12), abs=0.015)
    assert share @ [72, 72, 72, 66, 66] == pytest.approx(174)  # none is dealt twice


def test_logprob_of_an_update_against_the_normal_distribution(quickstart):
    """An update's mean over 12 cells of 6: variance (0.3^2 + 0.6^2 / 6) / 12 = 0.0125."""
    rates = assumed_rates(assumed_pool(0.6, 0.1, 0.0, 0.8), 58, 6, np.inf, Mean(-0.5, 0.6, 0.3))
    logprob = unchanged_updates(quickstart.plan, rates, 10_000, seed=2)["logprob"]
    assert logprob[:, 0].var() == pytest.approx(0.0125, rel=0.06)
    assert (logprob[:, 1] - logprob[:, 0] <= -0.3).mean() == pytest.approx(norm.cdf(-0.3 / np.sqrt(0.025)), abs=0.007)
    assert can_tell(rule("logprob", "<", -0.6), rates)


@pytest.mark.parametrize(
    "own",
    [
        rule("truncated_or_looping_share", ">=", 0.25),
        rule("truncated_or_looping_share", ">", 0.1, "change"),
        rule("logprob", "<=", -0.15, "change"),
        rule("logprob", "<", -0.6),
    ],
)
def test_every_run_ends_where_the_runners_own_rule_ends_it(quickstart, own):
    rates = assumed_rates(assumed_pool(0.6, 0.13, 0.05, 0.8), 58, 6, 2.0, Mean(-0.5, 0.4, 0.2))
    metrics = unchanged_updates(quickstart.plan, rates, 300, seed=3)
    mine = ever_holds(own, metrics)
    assert 0 < mine.sum() < 300
    for study in range(300):
        updates = [{name: float(values[study, k]) for name, values in metrics.items()} for k in range(5)]
        assert mine[study] == any(fired_rule([own], updates[: k + 1]) for k in range(5))


def test_what_is_not_simulated_is_said(quickstart):
    rates = assumed_rates(assumed_pool(0.6, 0.13, 0.05, 0.8), 58, 6, 2.0, Mean(None, 0.2, 0.1))
    found = stop_shares(quickstart.plan, rates, 500, seed=4)
    assert [(one.rule.name, one.share is None) for one in found] == [
        ("logprob_fell", False),
        ("mostly_unfinished", False),
        ("not_finite", True),
    ]
    assert not can_tell(rule("logprob", "<", -0.6), rates)
    assert not can_tell(rule("negative_share", ">", 0.6), rates)
