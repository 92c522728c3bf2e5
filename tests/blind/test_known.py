import json

import pytest

from ablation.blind import read_result
from ablation.errors import GateError
from ablation.rollouts.journal_chain import check_journal
from tests.blind.made import SUBJECT, held_out_rows, safety_rows, start, write_evaluation
from tests.blind.server import serving
from tests.blind.test_judge import PASS
from tests.cli.test_blind import SAME, call, fill, lines

LATER = "N@3"
ALL = "texts known from an opened read: N@2, 4 of 4 pairs"


def finding(command, subject, *more, code=0, name="held-out"):
    found = json.loads(call(command, name, "--subject", subject, "--json", *more, code=code).stdout)
    return next((one["state"], one["text"]) for one in found["leaks"] if one["name"] == "known")


def taken(folder, subject, path, rater):
    return call("import", fill(folder, path), "--subject", subject, "--rater", rater)


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Two checkpoints compared with the same start on the same seeds; the first one's read is sealed. The later one writes more."""
    run, locked, first = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    later = write_evaluation(run, locked, "held-out", held_out_rows(words=" So it is."), LATER)
    call("pairs", "--subject", SUBJECT)
    return run, locked, first, later


def warnings(both, subject):
    run, locked, _, _ = both
    return read_result(run, "held-out", subject, locked.plan).as_json()["warnings"]


def test_texts_of_an_opened_read_are_a_named_leak_and_its_rater_is_refused(both, tmp_path):
    run, locked, first, later = both
    taken(first, SUBJECT, tmp_path / "1.json", "me")
    call("unseal", "--subject", SUBJECT)
    state, text = finding("pairs", LATER)
    assert (state, text.split("; ")[0]) == ("leak", ALL)
    assert finding("check", LATER, code=4) == (state, text)
    before = run.journal.read_bytes()
    match = r"rater `me` may have seen the opened key of N@2; another rater is needed"
    with pytest.raises(GateError, match=match):
        taken(later, LATER, tmp_path / "2.json", "me")
    with pytest.raises(GateError, match=match):
        call("rate", "--subject", LATER, "--rater", "me", say=lines("y", *SAME * 4))
    with pytest.raises(GateError, match="rater `ME` may have seen"):
        taken(later, LATER, tmp_path / "2.json", "ME")
    assert run.journal.read_bytes() == before
    taken(later, LATER, tmp_path / "2.json", "bo")
    opened = json.loads(call("unseal", "--subject", LATER, "--json").stdout)
    told = [ALL + "; other raters than of this one rated it"]
    assert (opened["label"], opened["warnings"]) == ("PASSED", told)
    assert warnings(both, LATER) == told and warnings(both, SUBJECT) == []
    assert finding("check", SUBJECT)[0] == "ok"  # the later key was opened when all of these had been rated
    check_journal(run.root, locked.digest)


def test_reads_that_were_both_rated_before_a_key_was_opened_are_blind(both, tmp_path):
    _, _, first, later = both
    assert finding("pairs", LATER)[0] == "ok"  # sealed keys tell nothing
    taken(first, SUBJECT, tmp_path / "1.json", "me")
    taken(later, LATER, tmp_path / "2.json", "me")
    call("unseal", "--subject", SUBJECT)
    assert json.loads(call("unseal", "--subject", LATER, "--json").stdout)["warnings"] == []
    assert warnings(both, LATER) == [] and finding("check", LATER)[0] == "ok"


def test_whoever_had_begun_goes_on_and_the_result_says_so(both, tmp_path):
    first = both[2]
    call("pairs", "--subject", LATER)
    call("rate", "--subject", LATER, "--rater", "me", say=lines("y", *SAME, ""), code=6)
    taken(first, SUBJECT, tmp_path / "1.json", "me")
    assert finding("check", LATER)[0] == "ok"
    with pytest.raises(GateError, match="the plan asks for 1 rater"):
        taken(both[3], LATER, tmp_path / "2.json", "bo")
    call("unseal", "--subject", SUBJECT)
    assert finding("check", LATER, code=4)[0] == "leak"
    call("rate", "--subject", LATER, "--rater", "me", say=lines("y", *SAME * 3))
    call("unseal", "--subject", LATER)
    assert warnings(both, LATER) == [ALL + "; `me` rated both"]


def test_a_judge_model_has_seen_no_key(both, tmp_path):
    taken(both[2], SUBJECT, tmp_path / "1.json", "me")
    call("unseal", "--subject", SUBJECT)
    call("pairs", "--subject", LATER)
    with serving(lambda _: PASS) as server:
        call("judge", "--base-url", server.url, "--model", "m", "--subject", LATER)
    call("unseal", "--subject", LATER)
    assert warnings(both, LATER) == []


def test_only_a_text_that_one_model_alone_wrote_tells(both, tmp_path):
    """Of the safety answers the start's are known; `Paris.` was both models' answer, so it tells nothing."""
    run, locked, _, _ = both
    rows = safety_rows()
    rows["subject"][2] = rows["reference"][2]
    first = write_evaluation(run, locked, "safety", rows)
    write_evaluation(run, locked, "safety", rows | {"subject": [("h-1", "low", 0, "", "No.", 3), *rows["subject"][1:]]}, LATER)
    call("pairs", "safety", "--subject", SUBJECT)
    harm = {one["number"]: one["labels"][0] for one in json.loads(first.batch.read_bytes())["answers"]}
    call("rate", "safety", "--subject", SUBJECT, "--rater", "ann", say=lines("y", *harm.values()))
    call("unseal", "safety", "--subject", SUBJECT)
    state, text = finding("pairs", LATER, name="safety")
    assert (state, text.split("; ")[0]) == ("leak", "texts known from an opened read: N@2, 2 of 5 answers")
    with pytest.raises(GateError, match="rater `ann` may have seen the opened key of N@2"):
        call("rate", "safety", "--subject", LATER, "--rater", "ann")
