import json
import shutil

import pytest

from ablation.chain import Head, chained_line
from ablation.errors import IntegrityError
from ablation.files import folder_is_complete, sha256_bytes, sha256_file, write_folder, write_json
from ablation.rollouts.journal_chain import check_journal, clock_note, read_journal
from tests.verdict.study import lock_small, start_run, tell, write_stage, write_stop


@pytest.fixture
def study(tmp_path):
    """(run, plan): sweep, a trained update and a readout of C; N was stopped."""
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "run", locked)
    write_stage(run, locked, "main", "start")
    tell(run, locked, "update_trained", arm="main/C", update=2)
    write_folder(run.checkpoint("main", "C", 2), lambda folder: (folder / "adapter").write_bytes(b"a"))
    write_stage(run, locked, "main", "C")
    run.arm("main", "N").mkdir(parents=True)
    write_stop(run, locked, "main", "N", {"rule": "logprob_fell"})
    return run, locked


def cut(run, lines):
    """Keep the first `lines` lines of the journal."""
    whole = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(whole[:lines]))


def refused(run, locked, kept=None):
    with pytest.raises(IntegrityError) as caught:
        check_journal(run.root, locked.digest, kept)
    return caught.value.message


def test_a_whole_journal_tells_of_everything(study):
    run, locked = study
    state = check_journal(run.root, locked.digest)
    assert [event["event"] for event in state.events] == ["stage_sampled", "update_trained", "stage_sampled", "arm_stopped"]
    assert state.as_json() == {"length": 4, "head": state.head.sha256, "first_event": state.events[0]["time"]}
    assert state.notes == ()


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (3, "does not tell that a stop rule ended main/N"),
        (2, r"does not tell of the stage main/C/readout, which is complete \(and 1 more\)"),
        (1, "does not tell of the stage main/C/readout"),
        (0, "does not tell of the stage main/C/readout"),
    ],
)
def test_the_disk_itself_tells_of_a_cut_tail(study, left, message):
    run, locked = study
    cut(run, left)
    with pytest.raises(IntegrityError, match=message):
        check_journal(run.root, locked.digest)


def test_a_checkpoint_needs_its_event(study):
    run, locked = study
    shutil.copytree(run.checkpoint("main", "C", 2), run.checkpoint("main", "X", 1))
    assert "does not tell of the training of main/X/update-1, which has a checkpoint" in refused(run, locked)


def test_a_journal_that_is_gone_is_cut(study):
    run, locked = study
    run.journal.unlink()
    assert "the journal was cut" in refused(run, locked)


def test_rollouts_that_were_sampled_again_are_not_those_of_the_journal(study):
    run, locked = study
    marker = run.readout("main", "C") / "stage.json"
    content = json.loads(marker.read_bytes())
    content["parts"][0]["sha256"] = "0" * 64
    write_json(marker, content)
    assert "tells of another main/C/readout/stage.json than the one that is there" in refused(run, locked)


def test_a_cut_that_the_disk_does_not_show_is_found_by_a_kept_head(study):
    run, locked = study
    tell(run, locked, "runner_started")
    kept = check_journal(run.root, locked.digest).head
    assert kept.length == 5
    cut(run, 4)
    check_journal(run.root, locked.digest)
    assert "its tail was cut off" in refused(run, locked, kept)


def test_a_cut_that_the_disk_does_not_show_is_found_by_an_earlier_verdict(study):
    run, locked = study
    tell(run, locked, "runner_started")
    write_json(run.verdict, {"journal": check_journal(run.root, locked.digest).as_json()})
    check_journal(run.root, locked.digest)
    tell(run, locked, "runner_started")  # going on is no cut
    check_journal(run.root, locked.digest)
    cut(run, 4)
    assert f"{run.verdict} was written when it had 5" in refused(run, locked)
    run.verdict.write_bytes(b"")
    assert "is not a verdict with the head of its journal" in refused(run, locked)
    run.verdict.unlink()
    run.verdict.mkdir()  # a file of somebody else, which may not be read, was not edited either
    assert refused(run, locked) == f"{run.verdict}: cannot be read: Is a directory"


def test_a_head_of_another_history_is_refused(study):
    run, locked = study
    assert "line 2 is not the one that the given head names" in refused(run, locked, Head(2, "0" * 64))


def test_the_journal_of_another_plan_is_refused(study):
    run, _ = study
    with pytest.raises(IntegrityError, match="belongs to plan"):
        check_journal(run.root, "b" * 64)


def test_a_torn_end_is_said(study):
    run, locked = study
    with run.journal.open("ab") as file:
        file.write(b'{"seq": 4, "ti')
    (note,) = check_journal(run.root, locked.digest).notes
    assert "after line 4 there are 14 bytes that are no whole line" in note
    assert len(read_journal(run.journal)) == 4


def test_a_folder_in_which_nothing_has_run_passes(tmp_path):
    state = check_journal(tmp_path / "none", "a" * 64)
    assert (state.head, state.began) == (Head(0, "0" * 64), None)


@pytest.mark.parametrize(
    ("name", "event", "path"), [("audit", "update_trained", "main/C/update-2"), ("stopped", "arm_stopped", "main/N")]
)
def test_an_audit_or_a_stop_that_was_edited_is_not_that_of_the_journal(study, name, event, path):
    run, locked = study
    file = run.root / path / f"{name}.json"
    write_json(file, {"rule": "logprob_fell", "share": 0.5})
    check_journal(run.root, locked.digest)  # an event of an earlier version names no digest
    arm = "main/C" if name == "audit" else "main/N"
    tell(run, locked, event, arm=arm, update=2, **{f"{name}_sha256": sha256_file(file)})
    check_journal(run.root, locked.digest)
    write_json(file, {"rule": "logprob_fell", "share": 0.1})
    assert f"tells of another {path}/{name}.json than the one that is there" in refused(run, locked)


def test_a_checkpoint_that_was_swapped_with_its_marker_is_not_that_of_the_journal(study):
    run, locked = study
    checkpoint = run.checkpoint("main", "C", 2)
    check_journal(run.root, locked.digest)  # an event of an earlier version names no digest
    tell(run, locked, "checkpoint_saved", arm="main/C", update=2, checkpoint_sha256="0" * 64)  # killed before it was there
    tell(run, locked, "checkpoint_saved", arm="main/C", update=2, checkpoint_sha256=sha256_file(checkpoint / "complete.json"))
    check_journal(run.root, locked.digest)
    write_folder(run.checkpoint("main", "N", 2), lambda folder: (folder / "adapter").write_bytes(b"b"))
    shutil.rmtree(checkpoint)
    run.checkpoint("main", "N", 2).rename(checkpoint)
    assert folder_is_complete(checkpoint)
    assert "tells of another main/C/update-2/checkpoint than the one that is there" in refused(run, locked)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"time": "2026-11-30T00:00:00"}, "`time` is '2026-11-30T00:00:00', not an ISO 8601 time with its zone"),
        ({"time": 5}, "`time` is 5, not an ISO 8601 time with its zone"),
        ({"time": "noon"}, "`time` is 'noon', not an ISO 8601 time with its zone"),
        ({"event": None}, "`event` is None, not the name of an event"),
        ({"event": " "}, "`event` is ' ', not the name of an event"),
        ({"rollouts": "many"}, "`rollouts` is 'many', not a whole number"),
        ({"rollouts": [1]}, "`rollouts` is [1], not a whole number"),
        ({"tokens": True}, "`tokens` is True, not a whole number"),
        ({"update": 1.5}, "`update` is 1.5, not a whole number"),
        ({"seconds": "3"}, "`seconds` is '3', not a number"),
        ({"seconds": 1e308}, "`seconds` is 1e+308, not a number"),
        ({"stage": ["main"]}, "`stage` is ['main'], not a text"),
        ({"environment": "cpu"}, "`environment` is 'cpu', not an object"),
    ],
)
def test_a_field_that_no_event_can_have_is_named_with_its_line(study, fields, fault):
    run, locked = study
    append(run, locked, fields)
    assert refused(run, locked) == f"{run.journal}:5: {fault}"


def test_an_event_without_counts_or_with_none_passes(study):
    run, locked = study
    append(run, locked, {"time": "2026-11-30T00:00:00+05:30", "rollouts": 0, "seconds": 2, "update": None, "deviation": None})
    assert len(read_journal(run.journal)) == 5


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("stage_sampled", {"stage": "main/N/readout"}),
        ("part_written", {"stage": "main/N/update-2", "part": "part-000.parquet"}),
        ("update_trained", {"arm": "main/N", "update": 2}),
        ("command_started", {"arm": "main/N", "update": 2}),
        ("arm_finished", {"arm": "main/N"}),
    ],
)
@pytest.mark.parametrize("kept", [True, False])
def test_an_arm_that_a_stop_rule_ended_does_not_go_on(study, event, data, kept):
    run, locked = study
    tell(run, locked, event, **data)
    if not kept:
        run.stopped("main", "N").unlink()
    said = f"{run.journal}:4: a stop rule ended main/N there, but line 5 ({event}) goes on with it"
    assert refused(run, locked) == said


def test_a_stop_without_its_record_was_cut_short_or_removed(study):
    """A runner that is killed after the event has left the audit that the rule looked at, and others may go on before it does."""
    run, locked = study
    write_json(run.audit("main", "X", 2), {})
    tell(run, locked, "arm_stopped", arm="main/X", rule="logprob_fell", update=2)
    tell(run, locked, "stage_graded", stage="main/X/update-2")
    tell(run, locked, "update_trained", arm="main/C", update=3)
    tell(run, locked, "arm_stopped", arm="main/X", rule="logprob_fell", update=2)
    check_journal(run.root, locked.digest)
    shutil.rmtree(run.arm("main", "X"))
    assert "a stop rule ended main/X there, but main/X/stopped.json is not there: it was removed" in refused(run, locked)


def test_an_extension_that_a_stop_rule_ended_does_not_go_on(study):
    run, locked = study
    write_json(run.audit("main", "C", 3), {})
    tell(run, locked, "extension_stopped", arm="main/C", rule="logprob_fell", update=3)
    write_json(run.extension_stopped("main", "C"), {"rule": "logprob_fell"})
    check_journal(run.root, locked.digest)
    tell(run, locked, "check_judged", arm="main/C", update=4)
    assert "a stop rule ended main/C there, but line 6 (check_judged) goes on with it" in refused(run, locked)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (["2099-01-04T00:00:00+00:00", "2099-01-01T00:00:00+00:00", "2099-01-02T00:00:00+00:00"], "line 6 is 3 days, 0:00:00"),
        (["2099-01-01T02:00:00+00:00", "2099-01-01T02:30:00+01:00"], "line 6 is 0:30:00"),  # 01:30 UTC
        (["2099-01-01T02:00:00+00:00", "2099-01-01T03:00:00.5+01:00"], None),
        (["2099-01-01T02:00:00.900+00:00", "2099-01-01T02:00:00+00:00"], None),  # a clock that is kept right goes back by less
    ],
)
def test_a_clock_that_was_set_back_is_said(study, times, said):
    run, locked = study
    for time in times:
        append(run, locked, {"time": time})
    wanted = [] if said is None else [f"journal.jsonl: {said} earlier than a line before it: a clock was set back, "]
    assert [note[: len(wanted[0])] for note in check_journal(run.root, locked.digest).notes] == wanted  # none in the last two


def test_a_journal_that_begins_before_its_plan_was_locked_says_so(study):
    run, locked = study
    state = check_journal(run.root, locked.digest)
    assert clock_note(state, state.began) == []
    later = "2099-01-01T00:00:00+00:00"
    said = f"by its clock the journal begins ({state.began}) before the plan was locked ({later})"
    assert clock_note(state, later) == [said]
    assert clock_note(state, "noon") == ["the plan's lock names no time that can be read: 'noon'"]


def append(run, locked, fields):
    """One more line whose chain holds, whatever its fields are."""
    data = run.journal.read_bytes()
    count, last = data.count(b"\n"), data.splitlines()[-1]
    event = {"seq": count, "time": "2026-11-30T00:00:00+00:00", "event": "x", "plan": locked.digest}
    run.journal.write_bytes(data + chained_line(event | fields, sha256_bytes(last)) + b"\n")
