import pytest

from ablation.errors import IntegrityError
from ablation.measures.drift import drift, identical_rollouts
from ablation.rollouts.store import stage_of
from tests.rollouts.build import CLOSE, END, info, rollout

HELD_OUT = info(stage="held-out")


def stage(*rows, of=HELD_OUT):
    return stage_of(of, [rollout(of, ids, **fields) for ids, fields in rows])


FIRST = ([10, 11, CLOSE, 12, END], {"index": 0})
SECOND = ([10, 11, CLOSE, 13, END], {"index": 1})
OTHER = ([10, 11, CLOSE, 12, END], {"index": 0, "problem": "p2"})


def test_only_token_ids_that_are_all_equal_are_identical():
    one = stage(FIRST, SECOND, OTHER)
    assert identical_rollouts(one, one) == 3
    assert identical_rollouts(one, stage(OTHER, SECOND, FIRST)) == 3  # order does not matter
    changed = ([10, 11, CLOSE, 14, END], {"index": 1})
    longer = ([10, 11, 11, CLOSE, 12, END], {"index": 0})
    assert identical_rollouts(one, stage(FIRST, changed, OTHER)) == 2
    assert identical_rollouts(one, stage(longer, changed, OTHER)) == 1


@pytest.mark.parametrize("row", [(FIRST[0], {"index": 2}), (FIRST[0], {"index": 0, "seed": 5})], ids=["index", "seed"])
def test_other_rollouts_are_not_compared(row):
    with pytest.raises(IntegrityError, match="were not sampled on the same problems in the same seeds"):
        identical_rollouts(stage(FIRST), stage(row))


@pytest.mark.parametrize(("now", "flagged"), [(81, False), (80, True), (99, False), (100, True)])
def test_the_limit_itself_raises_the_flag(now, flagged):
    """The study's: moved by 10 or more."""
    one = stage(FIRST)
    found = drift(one, one, (now, 90), limit=10, against="N@5")
    assert found.flagged is flagged and found.change == now - 90
    assert ("DRIFT" in found.in_words()) is flagged


def test_what_is_told_of_a_set_without_right_answers():
    one = stage(FIRST, SECOND)
    found = drift(one, stage(FIRST, ([10, CLOSE, 13, END], {"index": 1})), None, limit=10, against="N@5")
    assert found.as_json() == {
        "against": "N@5",
        "rollouts": 2,
        "correct": None,
        "correct_before": None,
        "change": None,
        "flagged": False,
        "identical": 1,
        "identical_share": 0.5,
    }
    assert found.in_words() == (
        "the start, against the one that was sampled for N@5: 1 of 2 rollouts of one seed are the same to the last token"
    )
