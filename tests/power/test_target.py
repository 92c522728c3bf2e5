from __future__ import annotations

import numpy as np
import pytest

from ablation.errors import UsageError
from ablation.power.rates import Mean, assumed_pool, assumed_rates
from ablation.power.simulate import Model, simulate
from ablation.power.target import parse_target, propose

from .exact import at_most, binomial_difference

POOL = assumed_pool(correct=0.6, truncated=0.13, looping=0.05, looping_truncated=0.8)
LOGPROB = Mean(None, 0.2, 0.1)


def test_proposed_limits_have_the_share_that_was_asked_for(quickstart):
    """Exactly: P(change <= -26) = 2.3%, <= -28 = 1.6% and so on; the middle of 1% to 2.5% is 1.75%."""
    model = Model(assumed_rates(POOL, 58, 6, np.inf, LOGPROB))
    found = simulate(quickstart.plan, model, {}, 10_000, 1)
    clean, unfinished, looping = propose(quickstart.plan, model, found, (0.01, 0.025))
    assert [one.rule.name for one in (clean, unfinished, looping)] == ["clean_lost", "unfinished_gained", "looping_gained"]
    exact = binomial_difference(348, 0.6)
    inside = [limit for limit in range(-40, 0) if 0.01 <= at_most(exact, limit) <= 0.025]
    assert clean.limit in inside
    assert abs(at_most(exact, clean.limit) - 0.0175) < 0.003
    for limit, share in clean.around:
        assert abs(share.value - at_most(exact, limit)) < 4 * share.se
    limits = [limit for limit, _ in clean.around]
    assert limits == list(range(limits[0], limits[-1] + 1)), "no whole number between them is left out"
    shares = [share.value for _, share in clean.around]
    assert shares == sorted(shares)
    assert shares[0] < 0.01 < shares[1]
    assert shares[-2] < 0.025 < shares[-1]
    assert abs(clean.now.value - at_most(exact, -21)) < 4 * clean.now.se
    assert unfinished.limit > 0 < looping.limit


def test_rules_that_must_hold_fail_in_the_share_that_was_asked_for(tessera):
    sections = {
        "held_out": assumed_rates(POOL, 72, 2, np.inf, LOGPROB),
        "never_used": assumed_rates(POOL, 72, 2, np.inf, LOGPROB),
    }
    model = Model(assumed_rates(POOL, 58, 6, np.inf, LOGPROB), sections)
    found = simulate(tessera.plan, model, {}, 10_000, 2)
    proposals = {(one.section, one.rule.name): one for one in propose(tessera.plan, model, found, (0.01, 0.025))}
    assert ("held_out", "fewer_tokens") not in proposals  # no count
    kept = proposals["held_out", "correct_kept"]
    exact = binomial_difference(144, 0.6)
    assert 0.008 < at_most(exact, kept.limit - 1) < 0.027  # `>= limit` fails below it
    assert abs(kept.now.value - at_most(exact, -9)) < 4 * kept.now.se
    for limit, share in kept.around:
        assert abs(share.value - at_most(exact, limit - 1)) < 4 * max(share.se, 1e-4), limit


def test_a_target_between_two_whole_numbers(quickstart):
    model = Model(assumed_rates(POOL, 58, 6, np.inf, LOGPROB))
    found = simulate(quickstart.plan, model, {}, 1000, 1)
    clean = propose(quickstart.plan, model, found, (0.5001, 0.5002))[0]
    assert clean.limit is None
    assert [limit for limit, _ in clean.around] in ([-1, 0], [0, 1])


@pytest.mark.parametrize("text", ["0.01", "0.01-", "-0.01", "a-b", "0.02-0.01", "0-0.02", "0.01-1", "1-2.5", "nan-nan", ""])
def test_targets_that_cannot_be(text):
    with pytest.raises(UsageError, match="--target"):
        parse_target(text)
    assert parse_target(" 0.01-0.025 ") == (0.01, 0.025)
