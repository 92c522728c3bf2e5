from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.errors import IncompleteError, IntegrityError
from ablation.measures.compare import RATIOS, ratios
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
    rules = Statistics(resamples=500)
    assert ratios(subject, reference, None, rules) == ratios(*shuffled, None, rules)
    assert measure(shuffled[0]) == measure(subject)


def test_other_cells_cannot_be_compared():
    one, other = outcomes([("a", "low", 0, 1, 5, 9)]), outcomes([("b", "low", 0, 1, 5, 9)])
    with pytest.raises(IntegrityError, match="different cells: 2 are in one of them alone, for instance a@low"):
        tokens_per_correct_ratio(one, other, FEW)


def test_missing_rollouts_are_counted_or_refused_by_name():
    subject = outcomes([("a", "low", 0, 1, 5, 9), ("b", "low", 0, 1, 5, 9), ("b", "low", 1, 1, 5, 9)])
    reference = outcomes([("a", "low", 0, 1, 5, 9), ("a", "low", 1, 1, 5, 9), ("b", "low", 0, 1, 5, 9)])
    assert tokens_per_correct_ratio(subject, reference, FEW).missing == 2
    with pytest.raises(IncompleteError, match=r"the subject lacks 1: a@low #1; the reference lacks 1: b@low #1"):
        jointly_correct_length_ratio(subject, reference, FEW)


def test_cjk_share_is_a_ratio_of_medians():
    subject = outcomes([(name, "low", 0, 1, 5, 9, {"cjk_share": s}) for name, s in zip("abc", [0.1, 0.3, 0.2], strict=True)])
    reference = outcomes([(name, "low", 0, 1, 5, 9, {"cjk_share": 0.4}) for name in "abc"])
    found = ratios(subject, reference, None, FEW, medians=True)["cjk_share"]
    assert ratios(subject, reference, None, FEW)["cjk_share"].reason == "no_interval"  # it takes long, and nobody asked
    assert (found.value, found.low, found.clusters) == (0.5, 0.25, 3)
    assert found.high == pytest.approx(0.75, rel=1e-15)
    none = outcomes([(name, "low", 0, 1, 5, 9) for name in "abc"])
    assert ratios(subject, none, None, FEW)["cjk_share"].reason == "no_reference"


def test_only_what_is_named_is_computed():
    one = many(1)
    assert list(ratios(one, one, None, FEW, names=("clean_length",))) == ["clean_length"]
    assert set(ratios(one, one, None, FEW)) == set(RATIOS)


def test_by_problem_all_ratios_draw_problems():
    rows = [(p, e, i, 1, 5 + i + len(e), 9 + i) for p in "abc" for e in ("low", "medium") for i in range(2)]
    subject, reference = outcomes(rows), outcomes([(*row[:4], row[4] * 2 + i, row[5]) for i, row in enumerate(rows)])
    by_cell, by_problem = (ratios(subject, reference, None, FEW, cluster, medians=True) for cluster in ("cell", "problem"))
    assert {name: one.clusters for name, one in by_cell.items()} == dict.fromkeys(RATIOS, 6) | {"cjk_share": 6}
    assert {name: one.clusters for name, one in by_problem.items()} == dict.fromkeys(RATIOS, 3)
    for name in ("clean_length", "jointly_correct_length"):
        assert by_cell[name].value == by_problem[name].value


@given(
    seed=st.integers(0, 2**32 - 1),
    factor=st.integers(2, 9),
    method=st.sampled_from(["percentile", "expanded", "t"]),
    cluster=st.sampled_from(["cell", "problem"]),
)
@settings(max_examples=25, deadline=None)
def test_properties(seed, factor, method, cluster):
    """Any order of rows gives the same bits; a model whose tokens are `factor` times as many has `factor` times the ratio; and a
    ratio the other way round is one over it, its interval mirrored (bootstrap: the same draws, so that quantiles swap)."""
    rules = Statistics(resamples=200, method=method, seed=seed)
    subject, reference = many(seed, cells=12, rollouts=3), many(seed + 1, cells=12, rollouts=3)
    names = ("tokens_per_correct", "clean_length", "jointly_correct_length")
    plain = ratios(subject, reference, None, rules, cluster, names)
    rng = np.random.default_rng(seed)
    shuffled = [one.take(rng.permutation(len(one))) for one in (subject, reference)]
    assert ratios(*shuffled, None, rules, cluster, names) == plain
    longer = replace(subject, total_tokens=subject.total_tokens * factor, thinking_length=subject.thinking_length * factor)
    back = ratios(reference, subject, None, rules, cluster, names)
    for name, one in ratios(longer, reference, None, rules, cluster, names).items():
        if plain[name].reason is None:
            ends = [(getattr(one, end), getattr(plain[name], end)) for end in ("value", "low", "high")]
            assert all(float(more) == pytest.approx(factor * float(less)) for more, less in ends)
            assert float(back[name].value) == pytest.approx(1 / float(plain[name].value))
            if method == "t":
                assert back[name].low == pytest.approx(1 / plain[name].high)
