"""Where a strong loop is, against what is worked out by hand and against the share that makes it one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.plan.model import Loops
from ablation.rollouts.loops import find_loops
from ablation.rollouts.repeated import longest, repeated_tokens, stretches

BLOCK = list(range(100, 130))
STRONG = [token for turn in range(8) for token in (*BLOCK, 500 + turn)]
"""Eight times a block of 30 tokens, each followed by a token of its own: no period."""


def test_the_windows_of_a_loop_with_changes():
    report = find_loops(np.array(STRONG), np.array([0, len(STRONG)]), Loops())
    assert not report.periodic[0] and report.strong[0]
    # 248 tokens have 241 windows of 8; a block holds 23, and seven blocks occurred before
    assert report.repeated_share[0] == pytest.approx(7 * 23 / 241)
    found = stretches(repeated_tokens(np.array(STRONG), 8))
    assert found == [(31 * turn, 31 * turn + 30) for turn in range(1, 8)]
    assert longest(found) == (31, 61)


def test_windows_overlap_what_they_repeat_and_ends_count():
    assert stretches(repeated_tokens(np.array([1, 1, 1, 1]), 2)) == [(1, 4)]
    assert stretches(repeated_tokens(np.array([1, 2, 3, 1, 2]), 2)) == [(3, 5)]
    assert stretches(repeated_tokens(np.array([1, 2]), 8)) == [] == stretches(np.zeros(0, dtype=bool))
    assert longest([]) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=120), st.integers(1, 5))
def test_a_window_that_lies_inside_is_one_of_the_share_or_made_of_them(ids, gram):
    inside = repeated_tokens(np.array(ids, dtype=np.int32), gram)
    again = [at for at in range(len(ids) - gram + 1) if any(ids[b : b + gram] == ids[at : at + gram] for b in range(at))]
    wanted = {place for at in again for place in range(at, at + gram)}
    assert set(np.flatnonzero(inside).tolist()) == wanted
    if len(ids) >= gram:
        share = find_loops(np.array(ids, dtype=np.int32), np.array([0, len(ids)]), Loops(gram=gram)).repeated_share[0]
        assert share == pytest.approx(len(again) / (len(ids) - gram + 1))
