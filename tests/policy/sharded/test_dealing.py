"""Which process computes which rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ablation.policy.base import ScoreRow
from ablation.policy.sharded.dealing import deal
from ablation.policy.sharded.whole import own_rows

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def rows_of(lengths: list[int]) -> list[ScoreRow]:
    """Rows that begin with different tokens: nothing is shared."""
    return [ScoreRow((place,), np.arange(length)) for place, length in enumerate(lengths)]


@given(LENGTHS, st.integers(1, 60), st.integers(1, 5))
def test_every_row_is_computed_once_and_no_pass_is_over_full(lengths, tokens, processes):
    rows = rows_of(lengths)
    passes = deal(rows, tokens, processes, share=True)
    assert all(len(one) == processes for one in passes), "a pass is made by all together"
    dealt = [batch for one in passes for batch in one]
    assert sorted(index for batch in dealt for index in batch) == list(range(len(rows)))
    for batch in dealt:
        assert len(batch) <= 1 or sum(1 + lengths[index] for index in batch) <= tokens


def test_rows_of_one_length_are_dealt_evenly():
    passes = deal(rows_of([9] * 8), 10_000, 4, share=True)
    assert [[len(batch) for batch in one] for one in passes] == [[2, 2, 2, 2]]


def test_a_pass_more_than_needed_is_not_made():
    # 10 rows of 10 tokens, 30 at a time: 4 batches, which two processes compute in 2 passes and not in 5 of one row each.
    assert len(deal(rows_of([9] * 10), 30, 2, share=True)) == 2


def test_the_longest_goes_with_the_longest():
    # At 30 tokens at a time there would be three batches, so two passes; they may as well be four of one row.
    assert deal(rows_of([29, 1, 27, 2]), 30, 2, share=True) == [[[0], [2]], [[3], [1]]]


def test_some_may_have_nothing_to_do():
    assert deal(rows_of([5]), 100, 3, share=True) == [[[0], [], []]]
    assert deal([], 100, 3, share=True) == []


def test_it_does_not_depend_on_the_order_of_the_rows():
    rows = rows_of([5, 9, 2, 14, 7, 7, 3])
    forward = deal(rows, 40, 3, share=True)
    backward = deal(rows[::-1], 40, 3, share=True)
    named = [[[rows[index].prompt_ids for index in batch] for batch in one] for one in forward]
    assert named == [[[rows[::-1][index].prompt_ids for index in batch] for batch in one] for one in backward]


def test_rows_of_a_weight_are_divided_as_fsdp_divides_them():
    assert [own_rows(10, rank, 4) for rank in range(4)] == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]
    assert [own_rows(2, rank, 4) for rank in range(4)] == [slice(0, 1), slice(1, 2), slice(2, 2), slice(2, 2)]
