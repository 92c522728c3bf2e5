import json
import os
from pathlib import Path

import pytest

from ablation.blind.batch import PAIRS, Batch, Item
from ablation.blind.form import read_form
from ablation.blind.ratings import Ratings, Reply, form_bytes
from ablation.errors import UsageError
from ablation.rollouts.journal_chain import read_journal
from tests.blind.made import SUBJECT, start
from tests.cli.test_blind import call, fill

SIDE = {"thinking": "t", "answer": "a"}
BATCH = Batch(PAIRS, tuple(Item(number, "?", {"X": SIDE, "Y": SIDE}) for number in (1, 2, 3)))
NOBODY = Ratings("bo", (), "", b"")
GOOD = {"same_answer": True, "same_method": False, "x_missing_checks": False, "y_missing_checks": True}


def form(tmp_path, text):
    path = tmp_path / "f.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def content(*rows, **changes):
    """A form with one line a field and a rating a line, from line 5 on."""
    top = {"ablation_ratings": 1, "batch_sha256": BATCH.sha256, "blinded": True} | changes
    head = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in top.items())
    return "{\n" + head + '  "ratings": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n"


def row(item, **changes):
    return {"item": item} | GOOD | changes


def test_a_form_is_read_in_its_own_order(tmp_path):
    found = read_form(form(tmp_path, content(row(3, note="hm"), row(1))), BATCH, NOBODY)
    assert found == [Reply(3, GOOD, "file", note="hm"), Reply(1, GOOD, "file")]


def test_the_empty_form_asks_every_question_of_every_item(tmp_path):
    empty = json.loads(form_bytes(BATCH))
    explained = empty.pop("explained")
    assert explained["blinded"] == "true means: Nobody told me whose answers these are, and I did not look it up."
    assert explained["x_missing_checks"] == "Does X lack a check that the problem needs? (true or false)"
    assert set(explained) == {"blinded", *GOOD, "check"} and "a step that the problem needs" in explained["check"]
    assert empty == {
        "ablation_ratings": 1,
        "batch_sha256": BATCH.sha256,
        "blinded": None,
        "ratings": [{"item": number, **dict.fromkeys(GOOD), "note": ""} for number in (1, 2, 3)],
    }
    with pytest.raises(UsageError, match=r"f\.json:\d+: blinded: found nothing, not true"):
        read_form(form(tmp_path, form_bytes(BATCH)), BATCH, NOBODY)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(1), row(9)], r"f\.json:7: ratings\[1\]\.item: there is no item 9$"),
        ([row(0)], r"f\.json:6: ratings\[0\]\.item: there is no item 0$"),
        ([row("1")], r'item: there is no item "1"$'),
        ([row(True)], r"item: there is no item true$"),
        ([GOOD], r"f\.json:6: ratings\[0\]\.item: is missing$"),
        ([row(2), row(1), row(2)], r"f\.json:8: ratings\[2\]\.item: item 2 was rated in line 6$"),
        (
            [row(1), {"item": 2, "same_answer": True}],
            r"f\.json:7: ratings\[1\]\.same_method: item 2 has no answer to this question$",
        ),
        ([row(1, same_method=None)], r"ratings\[0\]\.same_method: item 1 has no answer"),
        ([row(1, same_method="yes")], r'ratings\[0\]\.same_method: found "yes", not true or false$'),
        ([row(1, same_method=1)], r"ratings\[0\]\.same_method: found 1, not true or false$"),
        ([row(1, same_methd=True)], r"ratings\[0\]\.same_methd: is no field of a rating$"),
        ([row(1, note=5)], r"ratings\[0\]\.note: is not a text"),
        ([row(1, note="a\ud800")], r"f\.json:6: ratings\[0\]\.note: has half of a character"),
        ([row(1, same_method="\ud800")], r'same_method: found "\\ud800", not true or false$'),
        ([row(1, **{"\udfff": 1})], r"ratings\[0\]\.\\udfff: is no field of a rating$"),
        (["x"], r'ratings\[0\]: found "x", not an object$'),
        ([], r"f\.json:5: ratings: is not a list of ratings$"),
    ],
)
def test_what_is_wrong_with_a_rating_is_named_with_its_line_and_field(tmp_path, rows, message):
    with pytest.raises(UsageError) as caught:
        read_form(form(tmp_path, content(*rows)), BATCH, NOBODY)
    assert caught.value.hint and caught.value.message.encode()
    import re

    assert re.search(message, caught.value.message, re.MULTILINE), caught.value.message


def test_what_is_wrong_is_told_together(tmp_path):
    rows = [row(1, same_method=None), row(2, same_answer="yes"), row(3)]
    with pytest.raises(UsageError) as caught:
        read_form(form(tmp_path, content(*rows, blinded=None)), BATCH, NOBODY)
    path = tmp_path / "f.json"
    assert caught.value.message.split("\n") == [
        f"{path}:4: blinded: found nothing, not true",
        f"{path}:6: ratings[0].same_method: item 1 has no answer to this question",
        f'{path}:7: ratings[1].same_answer: found "yes", not true or false',
    ]
    assert "Every question must be answered; nothing was taken." in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"f\.json:1: is not JSON: Expecting '\{'"),
        ("[]", "Expecting '{'"),
        ('{"ratings":', r"f\.json:1: is not JSON: Expecting value"),
        (content(row(1))[:-20], "is not JSON"),
        (content(row(1)) + "x", r"f\.json:8: is not JSON: Extra data"),
        (content(row(1)).replace('"blinded"', '"ablation_ratings"'), r"f\.json:4: ablation_ratings: is there twice"),
        (content(row(1)).replace('"same_method"', '"same_answer"'), r"f\.json:6: same_answer: is there twice"),
        (content(row(1)).replace("true", "NaN", 1), "NaN is no number"),
        (content(row(1)).replace("true", "9" * 5000, 1), r"cannot be read: 9999999999\.\.\. is a number of 5000 digits"),
        (content(row(1), blinded=False), r"f\.json:4: blinded: found false, not true"),
        (content(row(1), blinded="yes"), 'found "yes", not true'),
        (content(row(1), batch_sha256="a" * 64), r"f\.json:3: batch_sha256: these are ratings of another batch"),
        (content(row(1), ablation_ratings=2), r"f\.json:2: ablation_ratings: found 2, not 1"),
        (content(row(1), judge="x"), r"f\.json:5: judge: is no field of this form"),
        (content(row(1)).replace('"blinded": true,\n', ""), "blinded: is missing"),
        (b'{\n"a": "\xff"}', r"f\.json:2: is not UTF-8"),
        ('{"ratings": ' + "[" * 100_000, "is nested too deep|cannot be read"),
    ],
)
def test_what_is_no_form_is_named(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        read_form(form(tmp_path, text), BATCH, NOBODY)


def test_a_byte_order_mark_is_no_fault(tmp_path):
    assert len(read_form(form(tmp_path, b"\xef\xbb\xbf" + content(row(1)).encode()), BATCH, NOBODY)) == 1


def test_what_is_not_a_small_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match="is not a file"):
            read_form(path, BATCH, NOBODY)
    with (tmp_path / "big").open("wb") as file:
        file.truncate(10_000_001)
    with pytest.raises(UsageError, match="big: is larger than 10,000,000 bytes"):
        read_form(tmp_path / "big", BATCH, NOBODY)
    with pytest.raises(UsageError, match="none: could not be read: No such file"):
        read_form(tmp_path / "none", BATCH, NOBODY)


def test_nothing_is_half_imported(tmp_path, monkeypatch):
    run, _, folder = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    before = run.journal.read_bytes()
    with pytest.raises(UsageError, match=r"ratings\[3\]\.x_missing_checks: found 0, not true or false"):
        call(
            "import",
            fill(folder, tmp_path / "r.json", lambda rows: rows[3].update(x_missing_checks=0)),
            "--subject",
            SUBJECT,
            "--rater",
            "bo",
        )
    assert run.journal.read_bytes() == before and not folder.ratings.exists()


def test_a_form_may_come_in_parts_and_a_pair_only_once(tmp_path, monkeypatch):
    run, _, folder = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)

    def first(rows):
        del rows[2:]

    def again(rows):
        del rows[:1]

    def rest(rows):
        del rows[:2]

    done = call("import", fill(folder, tmp_path / "1.json", first), "--subject", SUBJECT, "--rater", "bo", code=6)
    assert "`bo` has 2 still open" in done.stdout
    with pytest.raises(UsageError, match=r"ratings\[0\]\.item: item 2 was rated by `bo` earlier"):
        call("import", fill(folder, tmp_path / "2.json", again), "--subject", SUBJECT, "--rater", "bo")
    with pytest.raises(UsageError, match="`bo` rates by file, not by person"):
        call("rate", "--subject", SUBJECT, "--rater", "bo")
    call("import", fill(folder, tmp_path / "3.json", rest), "--subject", SUBJECT, "--rater", "bo")
    assert [event["first"] for event in read_journal(run.journal) if event["event"] == "blind_rated"] == [1, 3]
