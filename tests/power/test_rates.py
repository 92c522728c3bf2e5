from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.errors import UsageError
from ablation.power.kinds import COUNTS_OF_KINDS, KINDS, MEMBERS, kind
from ablation.power.rates import FIXED, UNSEEN, Mean, Rates, assumed_pool, assumed_rates, estimated_concentration, pilot_rates

LOGPROB = Mean(None, 0.2, 0.1)


def test_kinds_are_counted_as_the_measures_are_defined():
    clean, cut, loop, both = (
        kind(*one) for one in [(False, False, "correct"), (True, False, "none"), (False, True, "correct"), (True, True, "none")]
    )
    assert COUNTS_OF_KINDS[clean].tolist() == [1, 1, 0, 0, 0, 0]
    assert COUNTS_OF_KINDS[cut].tolist() == [0, 0, 1, 0, 1, 1]
    assert COUNTS_OF_KINDS[loop].tolist() == [1, 0, 0, 1, 1, 0]
    assert COUNTS_OF_KINDS[both].tolist() == [0, 0, 1, 1, 1, 1]
    assert COUNTS_OF_KINDS.sum(axis=0).tolist() == [4, 1, 6, 6, 9, 4]


def test_assumed_rates_by_hand():
    """5% looping, 80% of it truncated: 4% both, 1% looping only; 13% - 4% = 9% truncated only; 60% clean; 26% wrong."""
    rates = assumed_rates(assumed_pool(0.6, 0.13, 0.05, 0.8), 58, 6, 2.0, LOGPROB)
    assert rates.total == 348
    expected = {"correct": 0.6, "clean": 0.6, "truncated": 0.13, "looping": 0.05, "truncated_or_looping": 0.14, "no_answer": 0.13}
    assert rates.expected() == pytest.approx(expected)
    assert rates.pooled_C[kind(False, False, "incorrect")] == pytest.approx(0.26)


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((0.9, 0.13, 0.05, 0.8), "correct 0.9 and truncated or looping 0.14 are more than all rollouts"),
        ((0.5, 0.01, 0.05, 0.8), "0.8 of looping 0.05 are truncated too, which is more than truncated 0.01"),
    ],
)
def test_rates_that_cannot_all_be(rates, text):
    with pytest.raises(UsageError, match=text):
        assumed_pool(*rates)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_assumed_rates_are_a_distribution_with_the_stated_rates(correct, truncated, looping, both):
    try:
        pool = assumed_pool(correct, truncated, looping, both)
    except UsageError:
        assert both * looping > truncated or correct + truncated + looping * (1 - both) > 1
        return
    assert (pool >= 0).all()
    assert pool.sum() == pytest.approx(1)
    assert pool[MEMBERS["looping"]].sum() == pytest.approx(looping)
    assert pool[MEMBERS["truncated"]].sum() == pytest.approx(truncated)


def test_drawn_rates_have_the_stated_variance_between_cells():
    """Beta(1.2, 0.8): variance 0.6 * 0.4 / 3 = 0.08."""
    rates = assumed_rates(assumed_pool(0.6, 0.13, 0.05, 0.8), 10, 6, 2.0, LOGPROB)
    drawn = rates.draw(4000, np.random.default_rng(0))
    assert drawn.sum(axis=-1) == pytest.approx(1)
    assert drawn[..., 0].mean() == pytest.approx(0.6, abs=0.01)
    assert drawn[..., 0].var() == pytest.approx(0.08, rel=0.03)
    fixed = assumed_rates(assumed_pool(0.6, 0.13, 0.05, 0.8), 10, 6, np.inf, LOGPROB).draw(3, np.random.default_rng(0))
    assert np.ptp(fixed, axis=(0, 1)) == pytest.approx(0)


def test_tiny_concentration_draws_proper_rates():
    drawn = assumed_rates(assumed_pool(0.6, 0.13, 0.05, 0.8), 50, 6, 0.05, LOGPROB).draw(2000, np.random.default_rng(0))
    assert np.isfinite(drawn).all()
    assert drawn.sum(axis=-1) == pytest.approx(1)


def test_the_concentration_is_found_again():
    """2,000 cells of 6 rollouts from Dirichlet(3 P)."""
    generator = np.random.default_rng(1)
    pool = assumed_pool(0.6, 0.13, 0.05, 0.8)
    cells = np.stack([generator.multinomial(6, row / row.sum()) for row in generator.dirichlet(3 * pool[pool > 0], 2000)])
    assert estimated_concentration(cells) == pytest.approx(3, rel=0.1)


def test_concentration_at_its_ends():
    alike = np.tile([3, 3], (10, 1))
    assert estimated_concentration(alike) == FIXED  # cells vary less than chance alone lets them
    assert estimated_concentration(np.eye(2)) == FIXED  # no cell has two rollouts: nothing is known
    opposite = np.array([[6, 0]] * 5 + [[0, 6]] * 5)
    assert estimated_concentration(opposite) == 0.05  # cells never disagree with themselves


def test_pilot_cells_are_shrunk_toward_the_average():
    """6 of 6 clean in a cell, 50% in all, concentration 2: (6 + 2 * 0.5) / 8 = 7/8; an unseen cell gets the average."""
    counts = np.zeros((3, KINDS))
    counts[0, 0], counts[1, 1] = 6, 6
    pool = counts.sum(axis=0)
    rates = pilot_rates(counts, pool, 6, 2.0, {}, "pilot")
    unseen = 12 + 2 * UNSEEN  # truncated ones never showed: half a rollout for each of two kinds
    half = 6 / unseen
    assert rates.expected_KC[0, 0] == pytest.approx((6 + 2 * half) / 8)
    assert rates.expected_KC[2, 0] == pytest.approx(half)
    assert rates.expected()["truncated"] > 0
    fixed = pilot_rates(counts, pool, 6, np.inf, {}, "pilot")
    assert isinstance(fixed, Rates)
    assert np.ptp(fixed.expected_KC, axis=0) == pytest.approx(0)
