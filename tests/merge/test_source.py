import json
import shutil

import pytest

from ablation.errors import IncompleteError, IntegrityError, UsageError
from ablation.files import MARKER, folder_files, json_bytes
from ablation.merge.source import find_source
from ablation.plan.lock import verify_lock
from tests.merge.small import edit_json


def source(study, text="C@2", family=None):
    return find_source(verify_lock(study / "plans" / "mini.yaml"), study / "runs" / "mini", text, family)


def test_every_digest_is_of_lock_and_journal(study):
    found = source(study)
    lock = verify_lock(study / "plans" / "mini.yaml").lock
    assert found.base_sha256 == lock.resources["model.base"]["sha256"] and found.base_locked
    assert found.start_adapter_sha256 == lock.resources["model.start_adapter"]["sha256"]
    events = [json.loads(line) for line in (study / "runs" / "mini" / "journal.jsonl").read_text().splitlines()]
    saved = [one for one in events if one["event"] == "checkpoint_saved" and one["update"] == 2]
    assert found.checkpoint_sha256 == saved[-1]["checkpoint_sha256"]
    assert found.record()["journal"]["length"] == len(events)
    assert (found.family, found.name) == ("main", "C@2")
    assert str(study) not in json.dumps(found.record())  # no path of a machine goes into a released folder


@pytest.mark.parametrize(
    ("text", "family", "says"),
    [
        ("C5", None, "found `C5`; it is ARM@UPDATES, for instance XK@2, or start@0"),
        ("c@2", None, "has no arm `c`; its arms are C, XK"),
        ("start@1", None, "the starting adapter is start@0, and an arm has at least one update"),
        ("C@0", None, "the starting adapter is start@0"),
        ("C@2", "man", "--family: .* has no family `man`; it has main, replication"),
    ],
)
def test_what_there_cannot_be(study, text, family, says):
    with pytest.raises(UsageError, match=says):
        source(study, text, family)


def test_a_checkpoint_that_is_not_there_yet(study):
    with pytest.raises(IncompleteError, match=r"there is no checkpoint \(of main/C there are: C@1, C@2\)"):
        source(study, "C@3")
    with pytest.raises(IncompleteError, match="of replication/C there are: none"):
        source(study, "C@2", "replication")
    shutil.rmtree(study / "runs")
    with pytest.raises(IncompleteError, match="there is no such run"):
        source(study)


def test_the_start_needs_no_run(study):
    shutil.rmtree(study / "runs")
    found = source(study, "start@0")
    assert found.adapter == found.start_adapter and found.checkpoint_sha256 is None and found.journal is None


@pytest.mark.parametrize("name", ["base", "start-adapter"])
def test_another_base_or_start_than_the_locked_one(study, name):
    edit_json(study / name / ("config.json" if name == "base" else "adapter_config.json"), surprise=1)
    with pytest.raises(IntegrityError, match=r"is not what .*mini.yaml was locked with"):
        source(study)


def test_a_base_that_is_not_at_hand(study):
    shutil.rmtree(study / "base")
    with pytest.raises(UsageError, match="model.base"):
        source(study)


def test_a_changed_adapter(study):
    path = study / "runs" / "mini" / "main" / "C" / "update-2" / "checkpoint"
    data = bytearray((path / "adapter_model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "adapter_model.safetensors").write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match="is not what was saved after update 2"):
        source(study)
    (path / MARKER).write_bytes(json_bytes({"files": folder_files(path)}))  # and its marker made to fit
    with pytest.raises(IntegrityError, match=r"tells of another main/C/update-2/checkpoint"):
        source(study)


def test_a_journal_that_was_cut(study):
    path = study / "runs" / "mini" / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    with pytest.raises(IntegrityError, match="the journal was cut"):
        source(study)
