"""Lines of ratings that no program of ours wrote, in a chain that holds."""

import pytest

from ablation.blind.batch import PAIRS, Batch, Item
from ablation.blind.ratings import Reply, _record, check_rater, read_ratings
from ablation.chain import GENESIS, chained_line
from ablation.errors import IntegrityError, UsageError
from ablation.files import sha256_bytes
from ablation.rollouts.blind_record import BlindFolder
from ablation.rollouts.folder import RunFolder

SIDE = {"thinking": "t", "answer": "a"}
BATCH = Batch(PAIRS, tuple(Item(number, "?", {"X": SIDE, "Y": SIDE}) for number in (1, 2)))
VALUES = {"same_answer": True, "same_method": True, "x_missing_checks": False, "y_missing_checks": False}
JUDGE = {"model": "m", "base_url": "u", "sampling": {}, "template_sha256": "t", "seed": 1}


def written(tmp_path, *replies, **changes):
    """The folder with these replies, the fields of the last one changed."""
    folder = BlindFolder(RunFolder(tmp_path), "held-out", "N@5")
    head, lines = GENESIS, []
    for number, reply in enumerate(replies, start=1):
        record = _record(reply, number, BATCH)
        lines.append(chained_line(record | (changes if number == len(replies) else {}), head))
        head = sha256_bytes(lines[-1])
    folder.ratings.mkdir(parents=True, exist_ok=True)
    folder.rater("bo").write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def test_what_was_written_is_read(tmp_path):
    first = Reply(1, None, "judge", attempt=1, judge=JUDGE)
    second = Reply(1, VALUES, "judge", attempt=2, judge=JUDGE | {"seed": 2})
    found = read_ratings(written(tmp_path, first, second), BATCH, "bo", [])
    assert found.replies == (first, second) and found.by == "judge"
    assert found.final(1, "XY") == second and found.attempts(1, "XY") == 2 and found.final(2, "XY") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_sha256": "a" * 64}, "rates another batch"),
        ({"blinded": False}, "is not a blinded rating; others are never pooled with it"),
        ({"blinded": None}, "is not a blinded rating"),
        ({"item": 3}, "there is no item 3"),
        ({"item": True}, "there is no item True"),
        ({"by": "oracle"}, "is not a rating"),
        ({"order": "YY"}, "is not a rating"),
        ({"status": "passed"}, "has status passed"),
        ({"status": "unparsed"}, "has status unparsed"),
        ({"values": None, "status": "unparsed"}, "has no rating"),
        ({"values": VALUES | {"same_answer": 1}}, "its values are not answers to the questions"),
        ({"values": {}}, "its values are not answers to the questions"),
        ({"values": [True]}, "its values are not answers to the questions"),
        ({"judge": JUDGE}, "is not a rating"),
        ({"note": None}, "is not a rating"),
        ({"attempt": 2}, "item 1 was rated before"),
        ({"score": 7}, r"is not a rating \(score\)"),
    ],
)
def test_a_line_that_is_no_rating_is_refused(tmp_path, changes, message):
    with pytest.raises(IntegrityError, match=rf"bo\.jsonl:1: {message}"):
        read_ratings(written(tmp_path, Reply(1, VALUES, "person"), **changes), BATCH, "bo", [])


@pytest.mark.parametrize(
    "other",
    [
        Reply(2, VALUES, "file"),
        Reply(2, VALUES, "judge", judge=JUDGE | {"model": "n"}),
        Reply(2, VALUES, "judge", judge=JUDGE | {"sampling": {"temperature": 1}}),
        Reply(2, VALUES, "judge", judge=JUDGE | {"template_sha256": "u"}),
    ],
)
def test_ratings_of_different_ways_are_never_pooled(tmp_path, other):
    with pytest.raises(IntegrityError, match="was asked in another way than the lines before it; they are never pooled"):
        read_ratings(written(tmp_path, Reply(1, VALUES, "judge", judge=JUDGE), other), BATCH, "bo", [])


def test_an_item_is_rated_once(tmp_path):
    with pytest.raises(IntegrityError, match=r"bo\.jsonl:2: item 1 was rated before"):
        read_ratings(written(tmp_path, Reply(1, VALUES, "person"), Reply(1, VALUES, "person", attempt=2)), BATCH, "bo", [])


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "a" * 41, "é"])
def test_names_of_raters(name):
    with pytest.raises(UsageError, match="is no name for a rater"):
        check_rater(name)
