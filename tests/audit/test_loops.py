"""The audit's loop checks against the definition by brute force, and against the engine's."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.audit.loops import needed, periodic, strong
from ablation.plan.model import Loops
from ablation.rollouts.loops import find_loops

DEFAULT = Loops().model_dump()


def by_definition(ids: list[int], loops: dict) -> bool:
    """Every start, every period, the longest stretch from there."""
    for start in range(len(ids)):
        for g in range(1, (len(ids) - start) // 2 + 1):
            stop = start + g
            while stop < len(ids) and ids[stop] == ids[stop - g]:
                stop += 1
            unit = ids[start : start + g]
            primitive = all(g % d or unit != unit[:d] * (g // d) for d in range(1, g))
            if primitive and stop - start >= needed(g, loops):
                return True
    return False


def test_by_hand():
    # 2 + 48 / 6^2 = 3.33 repeats of six tokens, so 20 tokens are enough and 19 are not
    unit = [5, 6, 7, 8, 9, 4]
    assert needed(6, DEFAULT) == 20 and needed(1, DEFAULT) == 50 and needed(48, DEFAULT) == 3 * 48
    assert periodic([np.array((unit * 4)[:20]), np.array((unit * 4)[:19]), np.array([], dtype=np.int64)], DEFAULT) == [
        True,
        False,
        False,
    ]
    assert periodic([np.array([1] * 49), np.array([1] * 50)], DEFAULT) == [False, True]
    # a stretch is one sequence's: two halves in two of them are none
    assert periodic([np.array(unit * 2), np.array(unit * 2)], DEFAULT) == [False, False]


def test_strong_by_hand():
    loops = DEFAULT | {"gram": 2, "repeated_share": 0.6}
    # 20 tokens, 19 windows of two, two distinct ones: 17 of 19 occurred before
    assert strong(np.array([1, 2] * 10), loops)
    assert not strong(np.arange(20), loops)
    assert not strong(np.array([1, 2] * 4), loops)  # seven windows, fewer than 4 * 2


words = st.lists(st.integers(1, 3), max_size=60)
with_loops = st.tuples(words, st.lists(st.integers(1, 4), min_size=1, max_size=9), st.integers(1, 9), words).map(
    lambda parts: parts[0] + parts[1] * parts[2] + parts[3]
)
settings_of_loops = st.fixed_dictionaries(
    {
        "min_repeats": st.integers(1, 4),
        "short_unit": st.sampled_from([0.0, 5.0, 12.5, 48.0]),
        "min_tokens": st.integers(1, 20),
        "gram": st.integers(1, 6),
        "repeated_share": st.sampled_from([0.0, 0.5, 0.6, 1.0]),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.lists(with_loops, min_size=1, max_size=4), settings_of_loops)
def test_the_definition_and_the_engine(sequences, loops):
    arrays = [np.array(ids, dtype=np.int32) for ids in sequences]
    assert periodic(arrays, loops) == [by_definition(ids, loops) for ids in sequences]
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in sequences])])
    engine = find_loops(np.concatenate(arrays), offsets, Loops(**loops))
    assert [strong(ids, loops) for ids in arrays] == engine.strong.tolist()
    if loops["min_repeats"] > 1:
        assert periodic(arrays, loops) == engine.periodic.tolist()
