import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablation.policy.base import ScoreRow
from ablation.policy.packing import micro_batches, pack, pad

CPU = torch.device("cpu")
small_ids = st.integers(0, 2)  # few ids, so that beginnings coincide
rows_of = st.lists(
    st.builds(
        lambda prompt, tokens: ScoreRow(tuple(prompt), np.array(tokens)),
        st.lists(small_ids, min_size=1, max_size=3),
        st.lists(small_ids, min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=8,
)


def whole(row):
    return (*row.prompt_ids, *row.token_ids.tolist())


def prefixes(rows):
    return {whole(row)[:length] for row in rows for length in range(1, len(whole(row)) + 1)}


def test_packed_by_hand():
    rows = [ScoreRow((7, 8), np.array([3, 4])), ScoreRow((7, 8), np.array([3])), ScoreRow((7,), np.array([9]))]
    packed = pack(rows, CPU)
    assert packed.ids.tolist() == [[7, 8, 3, 4, 9]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 1]]
    # 3 and 4 of the first row, 3 of the second, 9 of the third: predicted at tokens 1 (8), 2 (3), 1 (8) and 0 (7)
    assert packed.scored_U[packed.predictor_K].tolist() == [1, 2, 1, 0]
    assert packed.targets_K.tolist() == [3, 4, 3, 9]


def test_padded_by_hand():
    packed = pad([ScoreRow((7, 8), np.array([3, 4])), ScoreRow((7,), np.array([9]))], CPU)
    assert packed.ids.tolist() == [[7, 8, 3, 4], [7, 9, 0, 0]]
    assert packed.scored_U[packed.predictor_K].tolist() == [1, 2, 4]
    assert packed.blocks is None


def test_masks_are_made_by_length_and_not_by_the_value_of_an_id():  # the padding id 2 is the end id, and is sampled too
    rows = [ScoreRow((5,), np.array([6, 7, 2])), ScoreRow((5,), np.array([6, 2])), ScoreRow((5,), np.array([6, 7, 8, 9, 4]))]
    for arrange in (pack, pad):
        assert arrange(rows, CPU).targets_K.tolist() == [6, 7, 2, 6, 2, 6, 7, 8, 9, 4]


def test_only_wanted_tokens_are_scored():
    rows = [ScoreRow((7, 8), np.array([3, 4, 5])), ScoreRow((7,), np.array([9, 1]))]
    wanted = [np.array([True, False, True]), np.array([False, True])]
    for arrange in (pack, pad):
        packed = arrange(rows, CPU, wanted)
        assert packed.targets_K.tolist() == [3, 5, 1]
        assert packed.ids.flatten()[packed.scored_U[packed.predictor_K]].tolist() == [8, 4, 9]


@given(rows_of)
def test_each_distinct_beginning_is_one_token_at_its_own_position(rows):
    packed = pack(rows, CPU)
    ids, positions = packed.ids[0].tolist(), packed.positions[0].tolist()
    assert len(ids) == len(prefixes(rows))
    found = {}  # packed token -> its prefix, read from the attention blocks
    for block in packed.blocks:
        width = block.tokens_BL.shape[1]
        for place, token in zip(block.owned.tolist(), block.owned_tokens.tolist(), strict=True):
            row, at = divmod(place, width)
            assert token not in found  # owned once
            path = block.tokens_BL[row, : at + 1].tolist()
            assert path[-1] == token and positions[token] == at
            found[token] = tuple(ids[one] for one in path)
    assert set(found.values()) == prefixes(rows) and len(found) == len(ids)
    predicted = [found[token] for token in packed.scored_U[packed.predictor_K].tolist()]
    expected = [whole(row)[: len(row.prompt_ids) + at] for row in rows for at in range(len(row.token_ids))]
    assert predicted == expected


@given(rows_of, st.integers(1, 20), st.booleans(), st.randoms())
def test_micro_batches_hold_every_row_once_keep_the_budget_and_forget_the_order(rows, budget, share, random):
    batches = list(micro_batches(rows, budget, share=share))
    assert sorted(index for batch in batches for index in batch) == list(range(len(rows)))
    for batch in batches:
        arranged = (pack if share else pad)([rows[index] for index in batch], CPU)
        assert arranged.ids.numel() <= budget or len({whole(rows[index]) for index in batch}) == 1
    turned = list(rows)
    random.shuffle(turned)
    contents = [[whole(rows[index]) for index in batch] for batch in batches]
    assert [[whole(turned[index]) for index in batch] for batch in micro_batches(turned, budget, share=share)] == contents
