from fractions import Fraction

import pytest

from ablation.blind.kappa import cohens_kappa


def pairs(table):
    """Two lists of answers from {(first, second): count}."""
    rows = [pair for pair, count in table.items() for _ in range(count)]
    return [a for a, _ in rows], [b for _, b in rows]


def test_a_table_worked_out_by_hand():
    # 50 items: both yes 20, both no 15, only the first yes 5, only the second yes 10.
    # p_o = 35/50; shares of yes 25/50 and 30/50: p_e = 0.5 * 0.6 + 0.5 * 0.4 = 0.5; kappa = 0.2 / 0.5
    assert cohens_kappa(*pairs({("y", "y"): 20, ("n", "n"): 15, ("y", "n"): 5, ("n", "y"): 10})) == Fraction(2, 5)


def test_three_answers_by_hand():
    # p_o = 7/10; shares (5, 3, 2) and (4, 4, 2): p_e = (20 + 12 + 4) / 100 = 0.36; kappa = 0.34 / 0.64
    table = {("a", "a"): 4, ("a", "b"): 1, ("b", "b"): 2, ("b", "c"): 1, ("c", "b"): 1, ("c", "c"): 1}
    assert cohens_kappa(*pairs(table)) == Fraction(17, 32)


def test_perfect_none_and_worse_than_chance():
    assert cohens_kappa([1, 0, 1], [1, 0, 1]) == 1
    assert cohens_kappa([1, 0], [0, 1]) == -1
    assert cohens_kappa([1, 1, 0, 0], [1, 0, 1, 0]) == 0


def test_undefined_where_both_always_say_the_same_one_thing():
    assert cohens_kappa([True] * 5, [True] * 5) is None
    assert cohens_kappa([], []) is None
    with pytest.raises(ValueError, match="2 answers of one rater, 1 of the other"):
        cohens_kappa([1, 2], [1])
