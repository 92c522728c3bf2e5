import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.blind.choose import Candidate, TooFewPairs, choose, quotas
from ablation.errors import ExitCode


def names(chosen):
    return [f"{one.problem}@{one.effort}#{one.index}" for one in chosen]


def one(problem, effort, length, index=0):
    return Candidate(problem, effort, index, length)


def test_the_studys_read_takes_four_at_each_effort():
    assert quotas(12, ("low", "medium", "xhigh")) == {"low": 4, "medium": 4, "xhigh": 4}


def test_what_cannot_be_divided_equally_goes_to_the_first_efforts():
    assert quotas(11, ("low", "medium", "xhigh")) == {"low": 4, "medium": 4, "xhigh": 3}
    assert quotas(1, ("low", "medium")) == {"low": 1, "medium": 0}


def test_the_longest_thinking_of_the_start_is_read():
    found = choose([one("a", "low", 5), one("b", "low", 9), one("c", "low", 7)], ("low",), 2)
    assert names(found) == ["b@low#0", "c@low#0"]


def test_ties_go_by_problem_id_and_then_by_index():
    found = choose([one("b", "low", 7), one("a", "low", 7, 1), one("a", "low", 7, 0)], ("low",), 2)
    assert names(found) == ["a@low#0", "b@low#0"]


def test_a_problem_is_read_once_over_all_efforts():
    candidates = [one("a", "low", 9), one("b", "low", 8), one("a", "medium", 90), one("c", "medium", 3), one("a", "low", 99, 1)]
    assert names(choose(candidates, ("low", "medium"), 2)) == ["a@low#1", "c@medium#0"]


def test_an_earlier_effort_leaves_what_a_later_one_cannot_do_without():
    candidates = [one("a", "low", 9), one("b", "low", 8), one("a", "medium", 1)]
    assert names(choose(candidates, ("low", "medium"), 2)) == ["b@low#0", "a@medium#0"]


def test_the_order_of_the_candidates_does_not_matter():
    candidates = [one(p, e, n, i) for p, n in (("a", 3), ("b", 3), ("c", 5)) for e in ("low", "medium") for i in (0, 1)]
    assert choose(candidates, ("low", "medium"), 3) == choose(candidates[::-1], ("low", "medium"), 3)


def test_too_few_pairs_are_a_named_outcome_and_never_a_smaller_read():
    with pytest.raises(TooFewPairs, match=r"for 4 pairs \(medium: 1 of 2 that are needed\)") as caught:
        choose([one("a", "low", 1), one("b", "low", 1), one("c", "low", 1), one("d", "medium", 1)], ("low", "medium"), 4)
    assert (caught.value.code, caught.value.exit_code) == ("TOO_FEW_PAIRS", ExitCode.INCOMPLETE)
    shared = [one(problem, effort, 1) for problem in "ab" for effort in ("low", "medium")]
    with pytest.raises(TooFewPairs, match="solved 2 problems on the same seed, but there is no choice of 4 different ones"):
        choose(shared, ("low", "medium"), 4)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["low", "medium", "xhigh"]), st.integers(0, 3), st.integers(0, 9)),
        unique_by=lambda row: row[:3],
    )
)
def test_a_read_is_found_exactly_where_one_exists(rows):
    from itertools import product

    candidates = [Candidate(*row) for row in rows]
    efforts = ("low", "medium", "xhigh")
    solved = [sorted({c.problem for c in candidates if c.effort == effort}) for effort in efforts]
    exists = any(len(set(choice)) == 3 for choice in product(*solved))
    try:
        found = choose(candidates, efforts, 3)
    except TooFewPairs:
        assert not exists
        return
    assert exists
    assert [c.effort for c in found] == list(efforts) and len({c.problem for c in found}) == 3
