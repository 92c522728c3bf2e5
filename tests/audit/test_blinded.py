"""The audit's fixed rule for pairs, its draws and its count of passes, against the read's own and by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.audit.blinded import Opened, choose, drawn, tally
from ablation.blind.choose import Candidate, TooFewPairs
from ablation.blind.choose import choose as choose_for_the_read
from ablation.blind.key import draw

EFFORTS = ("low", "medium", "xhigh")
keys = st.tuples(st.sampled_from([f"p{i}" for i in range(6)]), st.sampled_from(EFFORTS), st.integers(0, 1))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(keys, st.integers(1, 5), max_size=20), st.integers(1, 6), st.integers(1, 3))
def test_the_fixed_rule(lengths, pairs, efforts):
    named = EFFORTS[:efforts]
    lengths = {key: length for key, length in lengths.items() if key[1] in named}
    mine = choose(lengths, named, pairs)
    try:
        theirs = choose_for_the_read([Candidate(*key, length) for key, length in lengths.items()], named, pairs)
    except TooFewPairs:
        assert mine is None
    else:
        assert mine == [(one.problem, one.effort, one.index) for one in theirs]


def test_draws():
    assert drawn(b"s" * 32, "order", "p1", "low", 0) == draw(b"s" * 32, "order", "p1", "low", 0)


GOOD = {"same_answer": True, "same_method": True, "x_missing_checks": False, "y_missing_checks": False}


def reply(item, by="person", order="XY", status="rated", **changes):
    values = None if status == "unparsed" else GOOD | changes
    return {"item": item, "order": order, "by": by, "status": status, "values": values}


def opened(*raters, left=()):
    ratings = {f"r{i}": list(one) for i, one in enumerate(raters)}
    return Opened({"pairs": [{"number": n} for n in (1, 2, 3, 4)]}, {}, ratings, left)


PLAN = {"passes": 3, "both_orders": True, "unparsed_limit": 0.25}


@pytest.mark.parametrize(
    ("raters", "label", "passes"),
    [
        ([[reply(n) for n in (1, 2, 3, 4)]], "PASSED", 4),
        ([[reply(1), reply(2), reply(3, same_answer=False), reply(4, y_missing_checks=True)]], "FAILED", 2),
        # each rater fails another pair
        ([[reply(n, same_method=n != 1) for n in (1, 2, 3, 4)], [reply(n, same_answer=n != 2) for n in (1, 2, 3, 4)]], "FAILED", 2),
        # a judge in both orders: a pair passes only if both say so; one reply of eight was never read, which could decide
        (
            [[reply(n, "judge", o, same_method=(n, o) != (1, "YX")) for n in (1, 2, 3) for o in ("XY", "YX")]
             + [reply(4, "judge"), reply(4, "judge", "YX", "unparsed")]],
            "UNDECIDED",
            2,
        ),
        # three of eight were never read: more than a quarter
        (
            [[reply(n, "judge") for n in (1, 2, 3, 4)]
             + [reply(n, "judge", "YX", "unparsed" if n > 1 else "rated") for n in (1, 2, 3, 4)]],
            "UNDECIDED",
            1,
        ),
    ],
)  # fmt: skip
def test_passes_by_hand(raters, label, passes):
    found = tally(opened(*raters), PLAN)
    assert (found.label, found.passes) == (label, passes)


@pytest.mark.parametrize(
    ("raters", "label", "passes", "outcomes"),
    [
        # r1 was let go after two pairs, one of which stays failed; the rest is r0's alone
        ([[reply(n) for n in (1, 2, 3, 4)], [reply(1, same_answer=False), reply(2)]], "PASSED", 3, [False, True, True, True]),
        # a judge that was let go: what it was never asked is not a reply that could not be read
        ([[reply(n) for n in (1, 2, 3, 4)], [reply(1, "judge"), reply(1, "judge", "YX")]], "PASSED", 4, [True] * 4),
        # r1 alone would have had to rate pairs 3 and 4
        ([[], [reply(1), reply(2)]], "UNDECIDED", 2, [True, True, None, None]),
    ],
)
def test_raters_who_were_let_go_by_hand(raters, label, passes, outcomes):
    found = tally(opened(*(one for one in raters if one), left=("r1", "r0") if not raters[0] else ("r1",)), PLAN)
    assert (found.label, found.passes, found.outcomes) == (label, passes, outcomes)
