"""Novelty by hand, on texts of known kind, and as the audit counts it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.audit.loops import strong
from ablation.plan.model import Loops
from ablation.rollouts.loops import find_loops
from ablation.rollouts.novelty import LAST, novelty
from tests.rollouts.loop_texts import KINDS, LOOPS, texts

LIMIT = 0.15


def test_by_hand():
    assert novelty("one two " * 99) is None  # 198 words
    assert novelty("one two " * 500) == 0
    # 250 words, of which only the first four groups of words are new, and they are not among the last 200
    assert novelty("a b c d e " * 50) == 0
    # 20 sentences of 10 words and a number: the first 20 words are not among the last 200; each later number is new, no word is
    assert novelty(" ".join(f"so we look at number {i} once more and again" for i in range(22))) == Fraction(20, LAST)
    # the same numbers again say nothing
    assert novelty(" ".join(f"so we look at number {i % 4} once more and again" for i in range(44))) == 0
    assert novelty("检查" * 200) == 0
    assert (
        novelty(" ".join(f"w{'abcdefghij'[i // 100]}{'abcdefghij'[i // 10 % 10]}{'abcdefghij'[i % 10]}" for i in range(300))) == 1
    )


def test_the_reported_texts():
    step = " ".join(f"Step {i} : let me check again whether the sum is right ." for i in range(40))
    table = "".join(
        f"Let me verify entry {i} of the table and check that the value {i * 37 % 101} matches what I computed before, then move on. "
        for i in range(200)
    )
    cases = "".join(f"Case a = {a}, b = {b}: a + b = {a + b}, so the sum is not 17. " for a in range(8) for b in range(8))
    assert [novelty(text) < LIMIT for text in (step, table, cases)] == [True, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_known_kind_are_told_apart_for_words_and_characters(kind):
    loops = Loops(novelty=LIMIT)
    for text in texts(kind, 4):
        found = []
        for pieces in (text.split(), list(text)):
            numbers = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
            ids = np.array([numbers[piece] for piece in pieces], dtype=np.int64)
            report = find_loops(ids, np.array([0, len(ids)]), loops, [text])
            found.append(bool(report.strong[0]))
            assert strong(ids, {"novelty": LIMIT}, text) == found[-1]  # the audit's own count
        assert found == [kind in LOOPS] * 2, text[:200]


@given(
    st.lists(
        st.sampled_from(["so", "17", "3.5", "x", "一", "二", ",", ".", "a1", "２", "²", "Wait", "\n"]), min_size=150, max_size=400
    )
)
def test_the_audit_counts_alike(words):
    text = " ".join(words)
    own = novelty(text)
    for limit in (0.05, 0.15, 0.5):
        assert strong(np.zeros(1), {"novelty": limit}, text) == (own is not None and own < Fraction(str(limit)))
