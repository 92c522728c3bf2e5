import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.plan.model import Loops
from ablation.rollouts.loops import find_loops

from .loop_texts import looping, natural, nearly_looping

LOOPS = Loops()
# Windows as long as a dozen characters say nothing about repeated sentences; characters need longer ones than words.
CHARACTERS = Loops(gram=24)


def pack(*sequences):
    """Token ids and offsets of sequences of anything hashable: equal things get equal ids."""
    ids = {}
    flat = [ids.setdefault(token, len(ids)) for sequence in sequences for token in sequence]
    return np.array(flat, dtype=np.int32), np.cumsum([0] + [len(sequence) for sequence in sequences])


def one(sequence, loops=LOOPS):
    return find_loops(*pack(sequence), loops)


TABLE = "\n".join(f"| {n} | {n * n} |" for n in range(1, 21))
DIVIDES = "\n".join(f"{k} does not divide 997" for k in range(2, 32)) + "\nso 997 is prime."
REGULAR = [
    "| n | n^2 |\n| --- | --- |\n" + TABLE,
    "... . . .",
    "1" + " 0" * 11,
    "0." + "3" * 12,
    DIVIDES,
]


@pytest.mark.parametrize("text", REGULAR, ids=["table", "ellipsis", "zeros", "threes", "divides"])
def test_regular_text_is_no_loop(text):
    """Case D01, as words and as characters."""
    words = one(text.split())
    assert not words.periodic[0] and not words.strong[0]
    characters = one(text, CHARACTERS)
    assert not characters.periodic[0] and not characters.strong[0]


@pytest.mark.parametrize(
    ("sequence", "period", "length"),
    [
        ([f"w{i}" for i in range(92)] * 3, 92, 276),
        ([*"abcd" * 5, "a", "b"], 4, 22),
        ("我们再检查一次吧"[:7] * 15, 7, 105),
        (["x"] * 50, 1, 50),  # 2 + 48 / 1
    ],
    ids=["long block", "cut in mid-period", "no spaces", "one token"],
)
def test_repeats_are_loops(sequence, period, length):
    """Case D03: any phase, cut anywhere, no largest period; with the unit, its place and its count."""
    found = find_loops(*pack(["start", "here", *sequence, "end"]), LOOPS)
    assert found.periodic[0]
    assert (found.start[0], found.period[0], found.length[0]) == (2, period, length)
    assert found.repeats[0] == length / period


@pytest.mark.parametrize(("count", "is_loop"), [(49, False), (50, True)])
def test_a_single_token_needs_fifty_repeats(count, is_loop):
    assert one([5] * count).periodic[0] == is_loop


@pytest.mark.parametrize(("count", "is_loop"), [(13, False), (14, True)])
def test_a_unit_of_two_needs_fourteen(count, is_loop):
    """2 + 48 / 4 = 14."""
    assert one([5, 6] * count).periodic[0] == is_loop


@pytest.mark.parametrize(("tokens", "is_loop"), [(3 * 92 - 1, False), (3 * 92, True)])
def test_a_long_block_needs_three_whole_repeats(tokens, is_loop):
    assert one((list(range(92)) * 3)[:tokens]).periodic[0] == is_loop


def test_a_unit_that_repeats_longer_pieces_inside_is_found():
    """The unit holds a 200-token block twice, so windows of up to 128 tokens have their last occurrence at changing gaps."""
    block = [f"b{i}" for i in range(200)]
    found = one([*block, *block, "c", *block, "d"] * 4)
    assert (found.period[0], found.length[0]) == (602, 2408)


def test_a_strong_loop_has_small_changes():
    """A sentence of 30 words, 8 times with a new word in the middle: no period; of 8 * 31 - 7 = 241 windows, 7 later
    copies repeat the 30 - 7 - 7 = 16 windows inside, the ones around the changed word are new, and the seams repeat."""
    sequence = [w for n in range(8) for w in ([f"w{i}" for i in range(15)] + [f"n{n}"] + [f"w{i}" for i in range(15, 30)])]
    found = one(sequence)
    assert not found.periodic[0]
    # each copy has 31 window starts; 8 windows hold the changed word; the last copy lacks the 7 that run past the end
    repeated = 7 * (31 - 8) - 7
    assert found.repeated_share[0] == pytest.approx(repeated / 241)
    assert found.strong[0] == (repeated / 241 >= 0.6)


def test_the_strong_share_counts_its_limit_as_reached():
    """65 windows of one token kind and others: exactly 60 of 100 windows repeated."""
    loops = Loops(gram=1, repeated_share=0.6)
    sequence = list(range(40)) + [0] * 60
    assert one(sequence, loops).repeated_share[0] == 0.6
    assert one(sequence, loops).strong[0]
    assert not one([*list(range(41)), *[0] * 59], loops).strong[0]


def test_sequences_do_not_see_each_other():
    """The same 40 tokens in two rollouts are no repeat, and empty rollouts are allowed."""
    ids, offsets = pack(list(range(40)), [], list(range(40)), ["x"] * 60, [])
    found = find_loops(ids, offsets, LOOPS)
    assert found.periodic.tolist() == [False, False, False, True, False]
    assert found.repeated_share[[0, 1, 2, 4]].tolist() == [0, 0, 0, 0]
    nothing = find_loops(np.zeros(0, dtype=np.int32), np.array([0, 0]), LOOPS)
    assert nothing.periodic.tolist() == [False]


def longest_by_hand(sequence, loops):
    """Longest stretch with smallest period g that passes, over all g: the definition, word by word."""
    best = 0
    for g in range(1, len(sequence)):
        run = 0
        for i in range(g, len(sequence) + 1):
            if i < len(sequence) and sequence[i] == sequence[i - g]:
                run += 1
            else:
                stretch = run + g
                need = max(loops.min_repeats, 2 + loops.short_unit / g**2)
                if run and stretch >= loops.min_tokens and stretch / g >= need and stretch > best:
                    piece = sequence[i - stretch : i]
                    smallest = next(p for p in range(1, g + 1) if piece[p:] == piece[: len(piece) - p])
                    best = stretch if smallest == g else best
                run = 0
    return best


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.integers(1, 12),
    st.lists(st.integers(0, 3), max_size=6),
    st.integers(0, 8),
)
def test_loops_agree_with_the_definition_tried_on_every_period(unit, count, before, cut):
    """A unit repeated inside other tokens: found exactly when some period passes; the longest stretch is the reported one."""
    sequence = [*before, *(unit * count + unit[:cut]), 7, 8, 9]
    found = one(sequence)
    by_hand = longest_by_hand(sequence, LOOPS)
    assert found.periodic[0] == (by_hand > 0)
    assert found.length[0] == by_hand


def test_a_unit_that_holds_a_line_of_dashes_is_found_in_a_long_text():
    """40 dashes and 12 words, three times: most windows of 8 or 32 tokens occurred one token before, and no 128 fit twice."""
    unit = ["-"] * 40 + [f"w{i}" for i in range(12)]
    found = one([f"a{i}" for i in range(500)] + unit * 3 + ["so", "it", "is", "7"])
    assert (found.periodic[0], found.strong[0]) == (True, False)
    assert (found.start[0], found.period[0], found.length[0]) == (500, 52, 156)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 45)), min_size=1, max_size=3),
    st.lists(st.integers(3, 5), max_size=12),
    st.integers(190, 420),
    st.integers(0, 12),
)
def test_units_with_runs_of_one_token_agree_with_the_definition(runs, more, percent, before):
    unit = [token for token, count in runs for _ in range(count)] + more
    sequence = [*range(10, 10 + before), *(unit * 5)[: len(unit) * percent // 100], 7, 8, 9]
    found = one(sequence)
    assert found.length[0] == longest_by_hand(sequence, LOOPS)


def test_a_million_tokens_take_seconds():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 50_000, 1_000_000).astype(np.int32)
    offsets = np.arange(0, 1_000_001, 10_000)
    ids[500_000:510_000] = np.tile(np.arange(100), 100)
    began = time.perf_counter()
    found = find_loops(ids, offsets, LOOPS)
    assert time.perf_counter() - began < 15
    assert np.flatnonzero(found.periodic).tolist() == [50]
    assert found.length[50] == 10_000


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_generated_loops_are_found_and_regular_texts_are_none(unit):
    rng = random.Random(7)
    loops = LOOPS if unit == "words" else CHARACTERS

    def found(texts):
        report = find_loops(*pack(*[text.split() if unit == "words" else text for text in texts]), loops)
        return report.periodic | report.strong

    assert found([looping(rng) for _ in range(200)]).all()
    assert found([nearly_looping(rng) for _ in range(50)]).all()
    assert not found([text for _ in range(25) for text in natural(rng)]).any()


@settings(max_examples=200)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=32), st.integers(0, 31), st.sampled_from([1, 256]))
def test_the_unit_is_the_smallest_period(unit, more, factor):
    """Against every shift, one after the other; ids that differ by 256 are told apart."""
    sequence = (unit * 60)[: 60 * len(unit) - more % len(unit)]
    smallest = next(p for p in range(1, len(unit) + 1) if sequence[p:] == sequence[:-p])
    head, tail = [7, 8, 9], [10, 11]
    ids = np.array([*head, *sequence, *tail], dtype=np.int32) * factor
    found = find_loops(ids, np.array([0, len(ids)]), LOOPS)
    assert (found.start[0], found.period[0], found.length[0]) == (3, smallest, len(sequence))


@settings(max_examples=100)
@given(st.data())
def test_a_sequence_is_judged_as_if_it_were_alone(data):
    """Most sequences of a block are left out early; which ones may not matter, whatever the settings ask for."""
    sequences = []
    for _ in range(data.draw(st.integers(1, 6))):
        unit = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=9))
        sequences.append([*data.draw(st.lists(st.integers(0, 600), max_size=30)), *(unit * 8)[: data.draw(st.integers(0, 60))]])
    own = Loops(
        min_repeats=data.draw(st.integers(1, 4)),
        short_unit=data.draw(st.sampled_from([0, 5.5, 48])),
        min_tokens=data.draw(st.sampled_from([1, 8, 16])),
        gram=data.draw(st.sampled_from([1, 4, 8])),
    )
    together = find_loops(*pack(*sequences), own)
    for row, sequence in enumerate(sequences):
        alone = one(sequence, own)
        for name in ("periodic", "start", "period", "length", "repeated_share", "strong"):
            assert getattr(together, name)[row] == getattr(alone, name)[0], name
