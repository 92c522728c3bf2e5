import json
import threading

import pytest

from ablation.chain import Head
from ablation.errors import IntegrityError, UsageError
from ablation.plan.deviations import (
    bare,
    check_continues,
    decorated,
    deviations_path,
    opened_by,
    pause_gate,
    rater_gate,
    read_deviations,
    record_deviation,
)
from ablation.plan.lock import lock_plan, verify_lock
from tests.plan.conftest import TEXT, write_plan

HEAD = Head(7, "ab" * 32)


@pytest.fixture
def locked(plan_path):
    lock_plan(plan_path)
    return verify_lock(plan_path)


@pytest.fixture
def three(locked):
    record_deviation(locked, reason="A wider cap, nothing sampled yet.", seen="nothing")
    record_deviation(locked, reason="N is run\n again in new seeds.", seen="progress", opens=["replication"], journal=HEAD)
    record_deviation(locked, reason="The readout of XK is left out.", seen="results")
    return deviations_path(locked.path)


def test_a_deviation_says_what_when_who_and_what_was_seen(locked, three):
    first, second, third = read_deviations(three, locked.digest)
    assert [one.number for one in (first, second, third)] == [1, 2, 3]
    assert (first.seen, first.opens, first.journal) == ("nothing", (), None)
    assert (second.reason, second.opens, second.journal) == ("N is run again in new seeds.", ("replication",), HEAD)
    assert third.time.endswith("+00:00") and third.by
    assert {json.loads(line)["plan"] for line in three.read_bytes().splitlines()} == {locked.digest}
    assert three.name == "small.deviations.jsonl"


def test_only_the_gate_that_was_named_is_open(locked, three):
    known = read_deviations(three, locked.digest)
    assert opened_by(known, "replication").number == 2
    assert opened_by(known[:1], "replication") is None


def test_a_pause_is_opened_for_one_arm_at_one_check_of_the_plan(tmp_path):
    plan = write_plan(tmp_path, TEXT + "extension: {updates: 10, checks: [8, 10]}\n")
    lock_plan(plan)
    locked = verify_lock(plan)
    for gate in (
        "extension-pause",
        "extension-pause:N",
        "extension-pause:Q@8",
        "extension-pause:N@9",
        "extension-pause:ARM@UPDATE",
    ):
        with pytest.raises(UsageError, match=f"found `{gate}`|there is no gate `{gate}`"):
            record_deviation(locked, reason="On past a check.", seen="results", opens=[gate])
    record_deviation(locked, reason="On past a check.", seen="results", opens=[pause_gate("N", 8)])
    known = read_deviations(deviations_path(plan), locked.digest)
    assert known[0].opens == ("extension-pause:N@8",)
    assert opened_by(known, pause_gate("N", 8)).number == 1
    for arm, update in (("N", 10), ("C", 8)):
        assert opened_by(known, pause_gate(arm, update)) is None


def test_a_rater_is_let_go_of_one_read_of_the_plan(locked):
    for what in (
        "",
        "held-out/N@2",
        "held-out/X@2/bo",
        "main/N@2/bo",
        "held-out/N@0/bo",
        "held-out/N@2/b o",
        "held-out/N@2/bo/x",
    ):
        with pytest.raises(UsageError, match="it is blind-rater:SET/ARM@UPDATES/RATER, for instance"):
            record_deviation(locked, reason="Bo has left.", seen="results", opens=[f"blind-rater:{what}"])
    gate = rater_gate("held-out", "N@2", "bo")
    record_deviation(locked, reason="Bo has left.", seen="results", opens=[gate])
    assert opened_by(read_deviations(deviations_path(locked.path), locked.digest), gate).number == 1


def test_labels_carry_the_numbers(locked, three):
    known = read_deviations(three, locked.digest)
    assert decorated("STABLE", []) == "STABLE"
    assert decorated("NOT_REPLICATED", known[:1]) == "NOT_REPLICATED (deviation 1)"
    assert decorated("STABLE", known) == "STABLE (deviations 1, 2, 3)"
    assert [bare(decorated("STABLE", known[:count])) for count in range(4)] == ["STABLE"] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reason": "because", "seen": "nothing"}, "--reason: say in a sentence"),
        ({"reason": "A wider cap for all arms.", "seen": "some"}, "`some` is not one of nothing, progress, results"),
        ({"reason": "A wider cap for all arms.", "seen": "nothing", "opens": ["phase"]}, "there is no gate `phase`"),
        (
            {"reason": "A wider cap for all arms.", "seen": "nothing", "opens": ["replication:N"]},
            "there is no gate `replication:N`",
        ),
        ({"reason": "A wider cap for all arms.", "seen": "nothing", "opens": ["extension-pause:N@8"]}, "which has no checks"),
    ],
)
def test_what_cannot_be_recorded_is_refused_and_nothing_is_written(locked, arguments, message):
    with pytest.raises(UsageError, match=message):
        record_deviation(locked, **arguments)
    assert not deviations_path(locked.path).exists()


def test_an_edit_a_swap_and_a_torn_end_are_found(locked, three):
    whole = three.read_bytes()
    rows = whole.splitlines(keepends=True)
    for damaged, message in (
        (whole.replace(b'"results"', b'"nothing"'), r"small.deviations.jsonl:3: is not a line"),
        (b"".join([rows[1], rows[0], rows[2]]), r"jsonl:1: the chain is broken"),
        (b"".join(rows[1:]), r"jsonl:1: the chain is broken"),
        (whole[:-1], "its last line is not whole"),
        (whole[:-30], "its last line is not whole"),
    ):
        three.write_bytes(damaged)
        with pytest.raises(IntegrityError, match=message):
            read_deviations(three, locked.digest)
        with pytest.raises(IntegrityError, match=message):  # and nothing is appended to it
            record_deviation(locked, reason="One more of them, appended.", seen="results")
        assert three.read_bytes() == damaged


def test_another_plans_deviations_are_refused(three):
    with pytest.raises(IntegrityError, match="not from bbbbbbbbbbbb"):
        read_deviations(three, "b" * 64)


def test_a_copy_tells_a_cut_and_an_exchanged_tail(locked, three, tmp_path):
    known = read_deviations(three, locked.digest)
    files = (tmp_path / "copy", three)
    check_continues(known[:2], known, files)
    with pytest.raises(IntegrityError, match="has 2 deviations, but .*copy has 3: its tail was cut off"):
        check_continues(known, known[:2], files)
    three.write_bytes(b"".join(three.read_bytes().splitlines(keepends=True)[:2]))
    record_deviation(locked, reason="Something else than it was.", seen="results")
    with pytest.raises(IntegrityError, match=r"jsonl:3: is not deviation 3 as .*copy has it"):
        check_continues(known, read_deviations(three, locked.digest), files)


def test_of_many_writers_none_is_lost(locked):
    def write(number):
        record_deviation(locked, reason=f"Change number {number} of them.", seen="nothing")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = read_deviations(deviations_path(locked.path), locked.digest)
    assert sorted(one.reason for one in known) == [f"Change number {number} of them." for number in range(8)]
