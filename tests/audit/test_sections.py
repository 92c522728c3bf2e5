"""The audit's choice between checkpoints against every way in which what is not known may turn out."""

import itertools
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.audit.sections import choose

PREFER = [{"measure": "correct", "order": "highest"}, {"measure": "truncated_or_looping", "order": "lowest"}]


def by_hand(candidates, tie):
    """Each unknown one keeps what is required, or not: all ways, one after the other."""
    found = set()
    unknown = [one["subject"] for one in candidates if one["keeps"] is None]
    for ways in itertools.product((True, False), repeat=len(unknown)):
        said = dict(zip(unknown, ways, strict=True))
        left = [one for one in candidates if said.get(one["subject"], one["keeps"])]
        for place, sign in enumerate((1, -1)):
            if len(left) > 1:
                numbers = [one["numbers"][place] for one in left]
                if None in numbers:
                    return False
                best = max(sign * number for number in numbers)
                left = [one for one in left if sign * one["numbers"][place] == best]
        found.add(None if not left else left[0 if tie == "earlier" else -1]["subject"])
    return found.pop() if len(found) == 1 else False


number = st.sampled_from([None, Fraction(1), Fraction(2), Fraction(3)])
candidate = st.tuples(st.sampled_from([True, True, False, None]), number, number)


@settings(max_examples=500, deadline=None)
@given(st.lists(candidate, max_size=6), st.sampled_from(["earlier", "later"]))
def test_every_way_gives_the_choice(rows, tie):
    candidates = [{"subject": f"N@{n}", "keeps": keeps, "numbers": numbers} for n, (keeps, *numbers) in enumerate(rows)]
    assert choose(candidates, PREFER, tie) == by_hand(candidates, tie)


def test_forty_checkpoints_of_which_nothing_is_known():
    rows = [{"subject": f"N@{n}", "keeps": None, "numbers": [Fraction(n), Fraction(0)]} for n in range(40)]
    assert choose(rows, PREFER, "earlier") is False
    sure = {"subject": "N@99", "keeps": True, "numbers": [Fraction(99), Fraction(0)]}
    assert choose([*rows, sure], PREFER, "earlier") == "N@99"
