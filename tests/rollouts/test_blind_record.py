import json

import pytest

from ablation.blind import read_result
from ablation.blind.key import read_key
from ablation.chain import GENESIS, chained_line, read_chain
from ablation.errors import IntegrityError
from ablation.files import json_bytes, sha256_bytes, write_json
from ablation.rollouts.blind_record import BlindFolder, blind_folders, told_lines
from ablation.rollouts.journal_chain import check_journal, read_journal
from tests.blind.made import SUBJECT, start
from tests.cli.test_blind import call, fill
from tests.verdict.study import tell


@pytest.fixture
def done(tmp_path, monkeypatch):
    """(run, plan, folder) of a read that was rated by `bo` and unsealed."""
    run, locked, folder = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    call("import", fill(folder, tmp_path / "r.json"), "--subject", SUBJECT, "--rater", "bo")
    call("unseal", "--subject", SUBJECT)
    return run, locked, folder


def refused(done):
    """What `check_journal` says, and what `read_result` says: both must refuse."""
    run, locked, _ = done
    with pytest.raises(IntegrityError) as first:
        check_journal(run.root, locked.digest)
    with pytest.raises(IntegrityError):
        read_result(run, "held-out", SUBJECT, locked.plan)
    return first.value.message


def test_a_whole_read_passes(done):
    run, locked, folder = done
    check_journal(run.root, locked.digest)
    assert read_result(run, "held-out", SUBJECT, locked.plan).label == "PASSED"
    assert blind_folders(run) == [folder] and folder.raters == ["bo"]


@pytest.mark.parametrize("name", ["batch", "page", "form", "key", "result"])
def test_an_edited_file_is_found(done, name):
    path = getattr(done[2], name)
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))
    assert f"blind/{path.name} than the one that is there" in refused(done)


def test_a_rating_that_was_edited_dropped_or_added_is_found(done):
    path = done[2].rater("bo")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(whole.replace(b'"same_answer": true', b'"same_answer": false', 1))
    assert "tells of another line 1 of evaluations/held-out/N@2/blind/ratings/bo.jsonl" in refused(done)
    path.write_bytes(b"".join(lines[:3]))
    assert "tells of 4 lines of evaluations/held-out/N@2/blind/ratings/bo.jsonl, which has 3" in refused(done)
    path.write_bytes(whole[:-9])
    assert "which has 3 and a part of one" in refused(done)
    path.write_bytes(whole + lines[0])
    assert "tells of 4 lines of" in refused(done)
    path.write_bytes(whole)
    other = done[2].rater("cy")
    other.write_bytes(whole)
    assert "does not tell of evaluations/held-out/N@2/blind/ratings/cy.jsonl" in refused(done)


def test_a_rewritten_chain_of_ratings_is_found(done):
    folder = done[2]
    records = read_chain(folder.rater("bo"), counter="number", first=1, what="").records
    head, lines = GENESIS, []
    for record in records:
        values = record["values"] | {"same_method": False}
        body = {name: value for name, value in record.items() if name not in ("prev", "sha256")} | {"values": values}
        lines.append(chained_line(body, head))
        head = sha256_bytes(lines[-1])
    folder.rater("bo").write_bytes(b"".join(line + b"\n" for line in lines))
    read_chain(folder.rater("bo"), counter="number", first=1, what="")  # a chain of its own, and whole
    assert "tells of another line 1 of" in refused(done)


def test_a_batch_that_is_gone_though_it_was_rated_is_found(done):
    done[2].batch.unlink()
    assert "tells of ratings of evaluations/held-out/N@2/blind/pairs.json, which is not there" in refused(done)


def test_a_rating_after_unsealing_is_found(done):
    run, locked, _ = done
    tell(run, locked, "blind_rated", set="held-out", subject=SUBJECT, rater="bo", first=5, lines=["0" * 64])
    assert "tells of a rating of evaluations/held-out/N@2/blind by bo after it was unsealed" in refused(done)


def test_a_result_is_never_trusted(done):
    """The journal can be forged to tell of an edited result; the ratings still say what they say."""
    run, locked, folder = done
    content = json.loads(folder.result.read_bytes()) | {"label": "FAILED", "passes": 0}
    write_json(folder.result, content)
    last = folder.events(read_journal(run.journal), "blind_unsealed")[-1]
    kept = {name: last[name] for name in ("batch_sha256", "key_sha256", "ratings")}
    tell(run, locked, "blind_unsealed", set="held-out", subject=SUBJECT, **kept, result_sha256=sha256_bytes(json_bytes(content)))
    check_journal(run.root, locked.digest)
    with pytest.raises(IntegrityError, match=r"result\.json: is not what ratings and key come to"):
        read_result(run, "held-out", SUBJECT, locked.plan)


def test_a_key_that_was_chosen_by_hand_is_found(tmp_path, monkeypatch):
    """A key with the models exchanged, sealed as if it had been drawn."""
    run, locked, folder = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    place = locked.path.parent / "small.keys" / "held-out-N@2.json"
    sealed = folder.sealing(read_journal(run.journal))
    key = read_key(place, sealed["key_sha256"])
    for row in key.items:
        row["X"], row["Y"] = row["Y"], row["X"]
    place.write_bytes(key.data)
    kept = {name: sealed[name] for name in ("kind", "items", "batch_sha256", "page_sha256", "form_sha256")}
    tell(run, locked, "blind_sealed", set="held-out", subject=SUBJECT, **kept, key_sha256=key.commitment)
    call("import", fill(folder, tmp_path / "r.json"), "--subject", SUBJECT, "--rater", "bo")
    with pytest.raises(IntegrityError, match="which answer is whose does not come out of the secret"):
        call("unseal", "--subject", SUBJECT)


def test_pairs_that_do_not_come_out_of_the_rule_are_found(tmp_path, monkeypatch):
    """Another pair than the fixed rule chooses, sealed as if it had been chosen."""
    from ablation.blind import build

    folder = start(tmp_path)[2]
    monkeypatch.chdir(tmp_path)
    true_rule = build.choose
    monkeypatch.setattr(
        build,
        "choose",
        lambda candidates, efforts, pairs: true_rule([one for one in candidates if one.problem != "sum-3"], efforts, pairs),
    )
    call("pairs", "--subject", SUBJECT)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    call("import", fill(folder, tmp_path / "r.json"), "--subject", SUBJECT, "--rater", "bo")
    with pytest.raises(IntegrityError, match="does not come out of the rollouts by the fixed rule"):
        call("unseal", "--subject", SUBJECT)
    assert not folder.key.exists()


def event(rater, first, *lines):
    return {"event": "blind_rated", "set": "held-out", "subject": SUBJECT, "rater": rater, "first": first, "lines": list(lines)}


def test_what_the_journal_tells_of_a_raters_lines(tmp_path):
    folder = BlindFolder(None, "held-out", SUBJECT)
    events = [event("bo", 1, "a"), event("cy", 1, "z"), event("bo", 2, "b", "c")]
    told = told_lines(folder, events, "bo")
    assert (told.lines, told.before, told.again) == (("a", "b", "c"), ("a",), ())
    # the writer was killed before b and c were there, and b was rated again
    told = told_lines(folder, [*events, event("bo", 2, "B")], "bo")
    assert (told.lines, told.before, told.again) == (("a", "B"), ("a",), (2, 3))
    for wrong in (
        event("bo", 1, "A"),
        event("bo", 3, "C"),
        event("bo", 9, "x"),
        event("bo", "2", "x"),
        {**event("bo", 4), "lines": None},
    ):
        assert told_lines(folder, [*events, wrong], "bo") is None


def test_a_writer_killed_between_event_and_line_loses_only_that_line(tmp_path, monkeypatch):
    run, locked, folder = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    yes = "y\ny\nn\nn\n"
    call("rate", "--subject", SUBJECT, "--rater", "ann", say="y\n" + yes * 2, code=6)
    lines = folder.rater("ann").read_bytes().splitlines(keepends=True)
    folder.rater("ann").write_bytes(lines[0])  # as if killed before the second was there
    check_journal(run.root, locked.digest)
    call("rate", "--subject", SUBJECT, "--rater", "ann", say="y\n" + yes * 3)
    found = json.loads(call("unseal", "--subject", SUBJECT, "--json").stdout)
    assert (found["label"], found["raters"]["ann"]["told_again"]) == ("PASSED", [2])
    folder.rater("ann").write_bytes(b"")
    assert "which has 0" in refused((run, locked, folder))
