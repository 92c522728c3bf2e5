"""What ratings come to: by hand, and against the audit's own way of counting."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ablation.audit.blinded import Opened
from ablation.audit.blinded import tally as audited
from ablation.blind.batch import PAIRS, Batch, Item
from ablation.blind.key import Key
from ablation.blind.ratings import Ratings, Reply, _record
from ablation.blind.tally import of_pair, tally
from ablation.plan.phase2 import BlindedRead

GOOD = {"same_answer": True, "same_method": True, "x_missing_checks": False, "y_missing_checks": False}
JUDGE = {"model": "m", "base_url": "u", "sampling": {}, "template_sha256": "t"}


def batch(n):
    return Batch(
        PAIRS,
        tuple(
            Item(k, "?", {"X": {"thinking": "t" * k, "answer": "a"}, "Y": {"thinking": "t", "answer": "a"}})
            for k in range(1, n + 1)
        ),
    )


def key(n):
    """The subject is X of the odd pairs."""
    sides = [("subject", "reference"), ("reference", "subject")]
    rows = [
        dict(zip("XY", sides[(k + 1) % 2], strict=True)) | {"number": k, "problem": f"p{k}", "effort": "low", "index": 0}
        for k in range(1, n + 1)
    ]
    return Key(bytes(32), "", rows)


def ratings(rater, *replies):
    return Ratings(rater, tuple(replies), "", b"")


def person(item, **changes):
    return Reply(item, GOOD | changes, "person")


def judge(item, order="XY", attempt=1, values=GOOD):
    return Reply(item, values, "judge", order, attempt, judge=JUDGE)


def test_every_question_can_fail_a_pair():
    settings = BlindedRead(pairs=5, passes=1)
    said = [
        person(1),
        person(2, same_answer=False),
        person(3, same_method=False),
        person(4, x_missing_checks=True),
        person(5, y_missing_checks=True),
    ]
    found = tally(batch(5), key(5), {"ann": ratings("ann", *said)}, settings)
    assert [row["passes"] for row in found["items"]] == [True, False, False, False, False]
    ann = found["raters"]["ann"]
    assert (ann["passes"], ann["same_answer"], ann["same_method"]) == (1, 4, 4)
    assert ann["missing_checks"] == {"subject": 0, "reference": 2}  # X of pair 4 and Y of pair 5 are the start's
    assert ann["preferred"] == {"subject": 2, "reference": 0, "tie": 3, "rate": 0.7}


def test_a_judge_and_a_person_are_asked_in_their_own_orders():
    settings = BlindedRead(pairs=2, passes=2, raters=2, both_orders=True)
    both = {
        "ann": ratings("ann", person(1), person(2)),
        "m": ratings("m", *(judge(k, order) for k in (1, 2) for order in ("XY", "YX"))),
    }
    found = tally(batch(2), key(2), both, settings)
    assert (found["label"], found["raters"]["ann"]["orders"], found["raters"]["m"]["orders"]) == ("PASSED", ["XY"], ["XY", "YX"])
    assert found["unparsed"] == {"asked": 4, "never": 0, "attempts": 0}
    assert "disagreed" not in found["raters"]["ann"] and found["kappa"]["ann/m"]["passes"] is None


def test_a_pair_that_one_rater_fails_fails_whatever_the_other_could_not_say():
    settings = BlindedRead(pairs=1, passes=1, raters=2, unparsed_limit=1)
    said = {"ann": ratings("ann", person(1, same_answer=False)), "m": ratings("m", judge(1, values=None))}
    found = tally(batch(1), key(1), said, settings)
    assert (found["label"], found["left_out"]) == ("FAILED", [])
    assert of_pair(said["m"], 1, ("XY",)).values is None


_ANSWERS = st.fixed_dictionaries(dict.fromkeys(GOOD, st.booleans()))
_MOSTLY_GOOD = st.one_of(st.just(GOOD), st.just(GOOD), _ANSWERS)


@st.composite
def reads(draw):
    n, both = draw(st.integers(1, 6)), draw(st.booleans())
    passes, limit = draw(st.integers(1, n)), draw(st.sampled_from([0, 0.1, 0.25, 0.5, 1]))
    said = {}
    for rater in draw(st.sampled_from([["a"], ["a", "b"]])):
        if draw(st.booleans()):
            said[rater] = ratings(rater, *(person(k, **draw(_MOSTLY_GOOD)) for k in range(1, n + 1)))
            continue
        replies = []
        for item in range(1, n + 1):
            for order in ("XY", "YX") if both else ("XY",):
                values = draw(st.one_of(st.none(), _MOSTLY_GOOD, _MOSTLY_GOOD))
                replies += [judge(item, order, 1, values)] + (
                    [judge(item, order, 2, GOOD)] if values is None and draw(st.booleans()) else []
                )
        said[rater] = ratings(rater, *replies)
    return n, said, BlindedRead(pairs=n, passes=passes, raters=len(said), both_orders=both, unparsed_limit=limit)


@given(reads())
def test_the_audit_counts_the_same(read):
    n, said, settings = read
    own = tally(batch(n), key(n), said, settings)
    records = {
        rater: [_record(one, number, batch(n)) for number, one in enumerate(of.replies, start=1)] for rater, of in said.items()
    }
    theirs = audited(Opened(json.loads(batch(n).data), {}, records), settings.model_dump())
    assert (own["label"], own["passes"], [row["passes"] for row in own["items"]]) == (
        theirs.label,
        theirs.passes,
        theirs.outcomes,
    )
    assert own["passes"] + len(own["left_out"]) <= n
