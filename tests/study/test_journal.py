import json

import pytest

from ablation.errors import IntegrityError
from ablation.rollouts.journal_chain import read_journal
from ablation.study.journal import Journal

PLAN = "a" * 64


@pytest.fixture
def path(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl", PLAN)
    for number in range(4):
        journal.append("tick", number=number, text="½ 思")
    journal.close()
    return tmp_path / "journal.jsonl"


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def test_events_are_numbered_dated_and_chained(path):
    events = read_journal(path)
    assert [event["seq"] for event in events] == [0, 1, 2, 3]
    assert events[0]["prev"] == "0" * 64
    assert all(event["plan"] == PLAN and event["time"].endswith("+00:00") for event in events)


def test_reopening_continues_the_chain(path):
    journal = Journal(path, PLAN)
    journal.append("tick", number=4)
    journal.close()
    assert [event["seq"] for event in read_journal(path)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_torn_tail_is_kept_aside_and_written_again(path, cut):
    data = path.read_bytes()
    path.write_bytes(data[:-cut])  # also inside the three-byte character
    journal = Journal(path, PLAN)
    journal.append("tick", number="again")
    journal.close()
    assert [event["number"] for event in read_journal(path)] == [0, 1, 2, "again"]
    assert journal.torn.read_bytes() == data[:-cut].splitlines()[3]


def damage_edit(rows):
    rows[1] = rows[1].replace(b'"number": 1', b'"number": 7')


def damage_drop(rows):
    del rows[1]


def damage_swap(rows):
    rows[1], rows[2] = rows[2], rows[1]


def damage_repeat(rows):
    rows.insert(2, rows[1])


def damage_text(rows):
    rows[2] = b"not an event\n"


@pytest.mark.parametrize("damage", [damage_edit, damage_drop, damage_swap, damage_repeat, damage_text])
def test_a_change_in_the_middle_is_found_with_its_line(path, damage):
    rows = lines(path)
    damage(rows)
    path.write_bytes(b"".join(rows))
    with pytest.raises(IntegrityError, match=r"journal.jsonl:[234]: "):
        read_journal(path)


def test_another_plans_journal_is_refused(path):
    with pytest.raises(IntegrityError, match="belongs to plan aaaaaaaaaaaa"):
        Journal(path, "b" * 64)


def test_a_full_disk_is_one_clear_error(path, monkeypatch):
    from ablation.files import DiskError

    journal = Journal(path, PLAN)
    journal._handle.close()
    with open("/dev/full", "ab", buffering=0) as journal._handle, pytest.raises(DiskError, match="No space left"):
        journal.append("tick")
    assert len(read_journal(path)) == 4


def test_times_are_only_in_the_journals_own_field(path):
    assert set(json.loads(lines(path)[0])) == {"seq", "time", "event", "plan", "prev", "sha256", "number", "text"}
