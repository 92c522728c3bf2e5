import numpy as np
import pytest

from ablation.errors import IncompleteError, IntegrityError
from ablation.measures.clusters import Clusters, Pair, missing_rows, partners, unpaired

from .build import many, outcomes

ROWS = [("b", "low", 1, 1, 5, 9), ("a", "low", 0, 1, 5, 9), ("a", "xhigh", 0, 0, 5, 9), ("b", "low", 0, 1, 5, 9)]


def test_sums_are_by_name():
    one = outcomes(ROWS)
    by_cell, by_problem = Clusters.by(one, "cell"), Clusters.by(one, "problem")
    assert by_cell.names.tolist() == ["a@low", "a@xhigh", "b@low"]
    assert (by_cell.sums(one.correct).tolist(), by_cell.sizes.tolist()) == ([1, 0, 2], [1, 1, 2])
    assert (by_problem.names.tolist(), by_problem.sums(one.correct).tolist()) == (["a", "b"], [1, 2])


def test_partners_are_found_whatever_the_order():
    one = many(1, cells=4, rollouts=3)
    rng = np.random.default_rng(0)
    subject, reference = partners(one.take(rng.permutation(12)), one.take(rng.permutation(12)))
    assert subject.cell.tolist() == reference.cell.tolist()
    assert subject.total_tokens.tolist() == reference.total_tokens.tolist()


def test_missing_rows_are_listed():
    one = outcomes(ROWS)
    assert missing_rows(one) == [("a", "low", 1), ("a", "xhigh", 1)]
    assert missing_rows(one.take(one.index == 0)) == []
    assert missing_rows(one.take(one.index > 1)) == []
    assert unpaired(one.take(one.problem == "a"), one.take(one.index == 0)) == ([("b", "low", 0)], [])


def test_what_is_missing_is_named_up_to_five():
    whole = many(1, cells=4, rollouts=3)
    with pytest.raises(IncompleteError) as raised:
        partners(whole, whole.take(whole.index == 0))
    assert raised.value.message == (
        "subject and reference do not have the same rollouts: the reference lacks 8: "
        "p00@low #1, p00@low #2, p01@low #1, p01@low #2, p02@low #1 ..."
    )
    assert Pair.by(whole, whole.take(whole.index == 0), "cell").missing == 8
    assert Pair.by(whole, whole.take(np.arange(12)[::-1]), "cell").missing == 0


def test_a_rollout_that_is_there_twice_is_refused():
    twice = outcomes([*ROWS, ROWS[1]])
    for call in (missing_rows, lambda one: partners(one, outcomes(ROWS))):
        with pytest.raises(IntegrityError, match="rollout a@low #0 is there twice"):
            call(twice)
