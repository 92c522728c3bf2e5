from fractions import Fraction

import numpy as np
import pytest

from ablation.measures.compare import ratios
from ablation.measures.lengths import clean_length_ratio, jointly_correct_length_ratio
from ablation.measures.measure import measure
from ablation.measures.tokens_per_correct import tokens_per_correct_ratio
from ablation.plan.model import Statistics

from .build import many, outcomes

FEW = Statistics(min_clusters=2, resamples=200)


def test_tokens_per_correct_is_a_pooled_exact_ratio():
    """Subject: 300 tokens, 3 correct -> 100. Reference: 400 tokens, 2 correct -> 200. Ratio one half."""
    subject = outcomes([("a", "low", 0, 1, 5, 90), ("a", "low", 1, 1, 5, 110), ("b", "low", 0, 1, 5, 100)])
    reference = outcomes([("a", "low", 0, 1, 5, 300), ("a", "low", 1, 1, 5, 50), ("b", "low", 0, 0, 5, 50)])
    found = tokens_per_correct_ratio(subject, reference, FEW)
    assert found.value == Fraction(1, 2)


def test_pooled_when_rollouts_are_missing():
    """Case I06: 8 of 8 and 0 of 2 are 0.8 pooled, not 0.5: 1000 tokens / 8 correct against 1000 / 10."""
    subject = outcomes([("a", "low", i, 1, 5, 100) for i in range(8)] + [("b", "low", i, 0, 5, 100) for i in range(2)])
    reference = outcomes([("a", "low", i, 1, 5, 100) for i in range(5)] + [("b", "low", i, 1, 5, 100) for i in range(5)])
    assert tokens_per_correct_ratio(subject, reference, FEW).value == Fraction(125, 100)


def test_no_correct_answer_is_an_undefined_ratio():
    right = outcomes([("a", "low", 0, 1, 5, 9), ("b", "low", 0, 1, 5, 9)])
    wrong = outcomes([("a", "low", 0, 0, 5, 9), ("b", "low", 0, 0, 5, 9)])
    for pair in ((right, wrong), (wrong, right)):
        found = tokens_per_correct_ratio(*pair, FEW)
        assert (found.value, found.reason) == (None, "zero_correct")


def test_by_problem_the_efforts_are_drawn_together():
    rows = [(p, e, 0, 1, 5, 9 + i) for i, (p, e) in enumerate((p, e) for p in "abc" for e in ("low", "medium"))]
    one = outcomes(rows)
    assert tokens_per_correct_ratio(one, one, FEW).clusters == 6
    assert tokens_per_correct_ratio(one, one, FEW, "problem").clusters == 3


def test_clean_length_is_over_cells_that_both_models_solved_cleanly():
    """a: (10 + 30) / 2 against 10 -> 2; b: 8 against 16 -> 1/2; c and d: only one side is clean. sqrt(2 * 1/2) = 1."""
    subject = outcomes(
        [
            ("a", "low", 0, 1, 10, 12),
            ("a", "low", 1, 1, 30, 32),
            ("b", "low", 0, 1, 8, 9),
            ("b", "low", 1, 0, 999, 999),
            ("c", "low", 0, 1, 50, 51),
            ("d", "low", 0, 0, 50, 51),
        ]
    )
    reference = outcomes(
        [
            ("a", "low", 0, 1, 10, 12),
            ("a", "low", 1, 1, 700, 700, {"periodic": True}),
            ("b", "low", 0, 1, 16, 17),
            ("b", "low", 1, 1, 900, 900, {"truncated": True}),
            ("c", "low", 0, 0, 50, 51),
            ("d", "low", 0, 1, 50, 51),
        ]
    )
    found = clean_length_ratio(subject, reference, FEW)
    assert found.value == pytest.approx(1)
    assert found.clusters == 2


def test_jointly_correct_pairs_are_same_cell_and_same_index():
    """Pairs: a0 10/20, a1 reference wrong, b0 30/10, b1 8/8. Geometric mean (1/2 * 3 * 1)^(1/3)."""
    subject = outcomes(
        [("b", "low", 1, 1, 8, 9), ("a", "low", 0, 1, 10, 11), ("a", "low", 1, 1, 5, 6), ("b", "low", 0, 1, 30, 31)]
    )
    reference = outcomes(
        [("a", "low", 0, 1, 20, 21), ("a", "low", 1, 0, 5, 6), ("b", "low", 0, 1, 10, 11), ("b", "low", 1, 1, 8, 9)]
    )
    found = jointly_correct_length_ratio(subject, reference, FEW)
    assert found.value == pytest.approx(1.5 ** (1 / 3))
    assert found.clusters == 2


def test_nothing_in_common_is_named():
    subject = outcomes([("a", "low", 0, 1, 5, 9), ("b", "low", 0, 0, 5, 9)])
    reference = outcomes([("a", "low", 0, 0, 5, 9), ("b", "low", 0, 1, 5, 9)])
    assert clean_length_ratio(subject, reference, FEW).reason == "nothing_shared"
    assert jointly_correct_length_ratio(subject, reference, FEW).reason == "nothing_shared"


def test_no_thinking_has_no_length_ratio():
    one = outcomes([("a", "low", 0, 1, 0, 9), ("b", "low", 0, 1, 0, 9)])
    assert clean_length_ratio(one, one, FEW).reason == "nothing_shared"
    assert jointly_correct_length_ratio(one, one, FEW).reason == "nothing_shared"


def test_row_order_does_not_matter():
    """Case I05: bit for bit."""
    subject, reference = many(1), many(2, scale=1.3)
    rng = np.random.default_rng(0)
    shuffled = [one.take(rng.permutation(len(one))) for one in (subject, reference)]
    settings = Statistics(resamples=500)
    measured = measure(subject), measure(reference)
    assert ratios(subject, reference, measured, settings) == ratios(*shuffled, measured, settings)
    assert measure(shuffled[0]) == measured[0]


def test_other_cells_cannot_be_compared():
    one, other = outcomes([("a", "low", 0, 1, 5, 9)]), outcomes([("b", "low", 0, 1, 5, 9)])
    with pytest.raises(ValueError, match="different cells"):
        tokens_per_correct_ratio(one, other, FEW)


def test_cjk_share_is_a_ratio_of_medians():
    subject = outcomes([("a", "low", i, 1, 5, 9, {"cjk_share": s}) for i, s in enumerate([0.1, 0.3, 0.2])])
    reference = outcomes([("a", "low", i, 1, 5, 9, {"cjk_share": s}) for i, s in enumerate([0.4, 0.4, 0.4])])
    found = ratios(subject, reference, (measure(subject), measure(reference)), FEW)["cjk_share"]
    assert (found.value, found.low, found.reason) == (0.5, None, "no_interval")
    none = outcomes([("a", "low", i, 1, 5, 9) for i in range(3)])
    assert ratios(subject, none, (measure(subject), measure(none)), FEW)["cjk_share"].reason == "no_reference"
