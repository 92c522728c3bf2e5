"""The rule that chooses between checkpoints, against every way to fill in what is unknown."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.plan.phase2 import Preference
from ablation.plan.rules import Rule
from ablation.verdict.rules import COMPUTED, RuleResult
from ablation.verdict.selection import Candidate, choose

PREFER = [Preference(measure="correct", order="highest"), Preference(measure="truncated", order="lowest")]
RULE = Rule(name="kept", measure="correct", compare="change", op=">=", limit=-3)


def candidate(update, keeps, *numbers):
    required = [RuleResult(RULE, keeps, None, COMPUTED)]
    return Candidate(f"N@{update}", update, required, tuple(None if one is None else Fraction(one) for one in numbers))


@pytest.mark.parametrize(
    ("candidates", "tie", "chosen"),
    [
        ([(10, True, 47, 2), (15, True, 47, 0)], "earlier", "N@15"),  # the study's
        ([(10, True, 48, 2), (15, True, 47, 0)], "earlier", "N@10"),
        ([(10, True, 47, 0), (15, True, 47, 0)], "later", "N@15"),
        ([(10, False, 48, 0), (15, True, 47, 0)], "earlier", "N@15"),
        ([(10, None, 46, 0), (15, True, 47, 0)], "earlier", "N@15"),  # whatever the first keeps, it is not chosen
        ([(10, True, None, 0)], "earlier", "N@10"),  # with one candidate no number matters
    ],
)
def test_the_choice(candidates, tie, chosen):
    assert choose([candidate(*one) for one in candidates], PREFER, tie).subject == chosen


def test_what_cannot_be_said():
    assert choose([candidate(10, False, 1, 1)], PREFER, "earlier") is None
    found = choose([candidate(10, None, 48, 0), candidate(15, True, 47, 0)], PREFER, "earlier")
    assert found == "whether N@10 keeps what is required cannot be said, and the choice depends on it"
    found = choose([candidate(10, True, 47, None), candidate(15, True, 47, 0)], PREFER, "earlier")
    assert found == "`truncated` of N@10 is undefined, and the choice depends on it"
    found = choose([candidate(10, True, Fraction(1, 3), 0), candidate(15, True, 1 / 3, 0)], PREFER, "later")
    assert found.subject == "N@10"  # exact: 1/3 is more than the double next to it


known = st.tuples(st.sampled_from([True, False, None]), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(known, min_size=1, max_size=4), st.sampled_from(["earlier", "later"]))
def test_an_unknown_requirement_matters_exactly_if_it_changes_the_choice(rows, tie):
    candidates = [candidate(update, *row) for update, row in enumerate(rows, start=4)]
    outcomes = set()
    for ways in itertools.product((True, False), repeat=len(rows)):
        if any(row[0] is not None and row[0] != way for row, way in zip(rows, ways, strict=True)):
            continue
        kept = [
            (one.numbers[0], -one.numbers[1], one.update * (1 if tie == "later" else -1))
            for one, way in zip(candidates, ways, strict=True)
            if way
        ]
        outcomes.add(max(kept)[2] if kept else None)
    found = choose(candidates, PREFER, tie)
    if len(outcomes) > 1:
        assert isinstance(found, str)
    else:
        (only,) = outcomes
        assert (None if found is None else found.update) == (None if only is None else abs(only))


rows = st.tuples(st.sampled_from([True, False, None]), *[st.sampled_from([0, 1, None])] * 2)


def sorted_out(kept, tie):
    """The rule read word by word: None for nobody, "?" where an undefined number is asked for."""
    for place, (_, sign) in enumerate((("highest", 1), ("lowest", -1))):
        if len(kept) > 1:
            if any(one.numbers[place] is None for one in kept):
                return "?"
            top = max(sign * one.numbers[place] for one in kept)
            kept = [one for one in kept if sign * one.numbers[place] == top]
    return None if not kept else kept[0 if tie == "earlier" else -1].update


@given(st.lists(rows, min_size=1, max_size=6), st.sampled_from(["earlier", "later"]))
def test_one_pass_says_what_all_ways_to_fill_in_the_unknown_say(rows, tie):
    candidates = [candidate(update, *row) for update, row in enumerate(rows, start=4)]
    ways = itertools.product(*[(True, False) if one.keeps is None else (one.keeps,) for one in candidates])
    outcomes = {sorted_out([one for one, keeps in zip(candidates, way, strict=True) if keeps], tie) for way in ways}
    found = choose(candidates, PREFER, tie)
    if len(outcomes) > 1 or "?" in outcomes:
        assert isinstance(found, str)
    else:
        assert outcomes == {None if found is None else found.update}


def test_many_undecided_candidates_take_no_time():
    """2 to the 400 ways to fill them in."""
    many = [candidate(update, None, update % 7, 0) for update in range(1, 401)]
    assert "the choice depends on it" in choose(many, PREFER, "earlier")
    assert choose([*many, candidate(401, True, 7, 0)], PREFER, "earlier").subject == "N@401"
