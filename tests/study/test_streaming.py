"""A stage whose rollouts come one by one: the bytes of a stage, whatever ends first and whatever ends the runner."""

import json
import os
import resource
import signal
from dataclasses import replace

import pytest

from ablation.errors import EngineFailed, IncompleteError, IntegrityError
from ablation.files import DiskError
from ablation.policy.local import LocalPolicy
from ablation.rollouts.inflight import append_rollouts, read_log, rollouts_on_disk
from ablation.rollouts.journal_chain import read_journal
from ablation.rollouts.store import read_part, read_stage, stage_is_begun
from ablation.rollouts.values import values_in_effect, values_text

from .streamed import CAP, ROLLOUTS, Quiet, Stage, make_policy, plan

NAMES = ["part-000.parquet", "part-001.parquet", "part-002.parquet", "part-003.parquet", "stage.json"]


@pytest.fixture(scope="module")
def own():
    return plan()


@pytest.fixture(scope="module")
def policy(own):
    return make_policy(own)


@pytest.fixture(scope="module")
def whole(policy, own, tmp_path_factory):
    """Bytes of the stage when nothing happens."""
    policy.shuffle, policy.ended, policy.paced = None, lambda count: None, None
    stage = Stage(policy, own, tmp_path_factory.mktemp("whole"))
    stage.sample()
    return stage.bytes()


@pytest.fixture
def stage(policy, own, tmp_path):
    policy.shuffle, policy.ended = 5, lambda count: None
    made = Stage(policy, own, tmp_path)
    policy.paced = made.folder
    return made


def dies_after(count, error=None):
    def ended(now):
        if now == count:
            raise error or EngineFailed("vLLM's engine was killed")

    return ended


def stopped(stage, count=11):
    """The stage when the engine died after `count` rollouts."""
    stage.policy.ended = dies_after(count)
    with pytest.raises(EngineFailed):
        stage.sample()
    stage.policy.ended = lambda now: None
    return stage


def lines(stage):
    """Seed -> its line in flight."""
    return {json.loads(line)["seed"]: line for log in stage.logs for line in log.read_bytes().splitlines()[1:]}


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_order_in_which_rollouts_end_changes_no_byte(stage, whole, order):
    stage.policy.shuffle = order
    stage.policy.paced = stage.folder if order < 3 else None  # the third leaves all to the thread that writes
    told = stage.sample()
    assert stage.bytes() == whole
    assert sorted(whole) == NAMES
    assert not (stage.folder / "inflight").exists()
    assert told.began == [("main/start/sweep", ROLLOUTS, 0, CAP)]
    assert [done for done, _ in told.told] == list(range(1, ROLLOUTS + 1))
    assert told.ended == [told.told[-1][1]] == [int(read_stage(stage.folder).offsets[-1])]


def test_the_local_policy_is_asked_for_the_plans_batches_and_leaves_nothing_in_flight(own, whole, tmp_path):
    class Local(LocalPolicy):
        asked = []  # noqa: RUF012

        def sample(self, requests, progress=None, taken=None):
            self.asked.append([request.seed for request in requests])
            assert not list(tmp_path.rglob("inflight"))
            return super().sample(requests, progress, taken)

    local = Stage(make_policy(own, Local), own, tmp_path)
    local.sample()
    assert [len(batch) for batch in Local.asked] == [7, 7, 7, 3]
    assert [seed for batch in Local.asked for seed in batch] == [item.seed for item in local.items]
    assert sorted(local.bytes()) == NAMES
    stage = read_stage(local.folder)
    assert stage.sampling.values == [values_text(values_in_effect(1.0, 1.0, 0, CAP, stage.info.end_ids))]
    assert [one.stop_id for one in stage.rollouts()] == [
        one.token_ids[-1] if one.finish_reason == "stop" else None for one in stage.rollouts()
    ]


def test_what_had_ended_when_the_engine_died_is_kept_and_not_sampled_again(stage, whole):
    stopped(stage)
    there = lines(stage)
    in_parts = {one.seed for path in stage.folder.glob("part-*") for one in read_part(path)}
    assert len(there) + len(in_parts) == 11 == rollouts_on_disk(stage.folder)
    assert stage_is_begun(stage.folder)
    with pytest.raises(IncompleteError, match="not complete"):
        read_stage(stage.folder)
    stage.policy.shuffle = 8
    told = stage.sample()
    assert told.began[0][2] == 11
    assert [done for done, _ in told.told] == list(range(12, 25))
    assert sorted(stage.policy.asked) == sorted({item.seed for item in stage.items} - there.keys() - in_parts)
    assert stage.bytes() == whole
    assert rollouts_on_disk(stage.folder) == ROLLOUTS


def test_no_rollout_and_no_part_is_written_twice_over_many_deaths(stage, whole):
    for count in (1, 2, 3, 4, 5, 6):
        stopped(stage, count)
        assert rollouts_on_disk(stage.folder) == sum(range(1, count + 1))
    stage.sample()
    assert len(stage.policy.asked) == ROLLOUTS - 21
    assert stage.bytes() == whole
    events = [event for event in read_journal(stage.root / "journal.jsonl") if event["event"] == "part_written"]
    assert sorted(event["part"] for event in events) == NAMES[:4]


def test_a_runner_that_is_killed_goes_on_with_what_was_on_disk(stage, whole):
    def die(count):
        if count == 13:
            while rollouts_on_disk(stage.folder) < 12:  # the thread that writes may be behind
                pass
            os.kill(os.getpid(), signal.SIGKILL)

    stage.policy.ended = die
    child = os.fork()
    if not child:
        stage.sample()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    stage.policy.ended = lambda count: None
    there = rollouts_on_disk(stage.folder)
    assert there in (12, 13)
    assert stage.sample().began[0][2] == there
    assert len(stage.policy.asked) == ROLLOUTS - there
    assert stage.bytes() == whole


@pytest.mark.parametrize("cut", [1, 2, 70, 1500])
def test_a_line_that_a_kill_cut_is_sampled_again_and_no_other(stage, whole, cut):
    stopped(stage)
    before = lines(stage)
    log = max(stage.logs, key=lambda path: path.stat().st_size)
    data = log.read_bytes()
    last = data.splitlines()[-1]
    assert cut < len(last)
    log.write_bytes(data[:-cut])
    assert rollouts_on_disk(stage.folder) == 10
    stage.sample()
    assert json.loads(last)["seed"] in stage.policy.asked
    assert not set(stage.policy.asked) & (before.keys() - {json.loads(last)["seed"]})
    assert stage.bytes() == whole


@pytest.mark.parametrize("left", [0, 1, 300])
def test_a_log_that_was_killed_in_its_first_line_is_begun_again(stage, whole, left):
    stopped(stage)
    log = stage.logs[0]
    log.write_bytes(log.read_bytes()[:left])
    stage.sample()
    assert stage.bytes() == whole


def test_an_edited_rollout_is_named_with_its_line(stage):
    stopped(stage)
    log = stage.logs[0]
    data = log.read_bytes().splitlines(keepends=True)
    data[1] = data[1].replace(b'"finish_reason":"stop"', b'"finish_reason":"length"').replace(b'"seed":', b'"seed":1')
    log.write_bytes(b"".join(data))
    with pytest.raises(IntegrityError, match=rf"{log.name}:2: this line is not what was written") as raised:
        stage.sample()
    assert "sampled again" in raised.value.hint
    log.unlink()
    stage.sample()


def test_rollouts_of_another_adapter_or_engine_are_refused(stage):
    stopped(stage, 2)
    for changes, name in (
        ({"adapter_sha256": "0" * 64}, "adapter_sha256"),
        ({"engine": {"name": "local"}}, "engine"),
        ({"plan_digest": "e" * 64}, "plan_digest"),
    ):
        with pytest.raises(IntegrityError, match=rf"inflight/part-00\d.jsonl: was sampled under other settings \({name}\)"):
            stage.sample(replace(stage.info, **changes))


def test_a_log_of_another_batch_and_a_file_that_is_none_are_refused(stage):
    stopped(stage, 4)
    log = stage.logs[0]
    other = next(log.with_name(f"part-00{n}.jsonl") for n in range(4) if not log.with_name(f"part-00{n}.jsonl").exists())
    log.rename(other)
    with pytest.raises(IntegrityError, match=r"rollout \S+ #\d is not of this batch"):
        stage.sample()
    other.rename(log)
    for name in ("part-004.jsonl", "notes.txt"):
        (log.parent / name).write_bytes(b"")
        with pytest.raises(IntegrityError, match=rf"{name}: belongs to no batch of this stage"):
            stage.sample()
        (log.parent / name).unlink()


def test_a_rollout_that_is_there_twice_is_refused(stage):
    stopped(stage)
    log = stage.logs[0]
    data = log.read_bytes()
    log.write_bytes(data + data.splitlines(keepends=True)[1])
    with pytest.raises(IntegrityError, match="is there more than once"):
        stage.sample()


def test_a_kill_between_the_part_and_the_end_of_its_log(stage, whole, monkeypatch):
    from ablation.study import stage_writer

    def die(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(stage_writer, "remove_log", die)
    with pytest.raises(KeyboardInterrupt):
        stage.sample()
    monkeypatch.undo()
    (part,) = stage.folder.glob("part-*")
    (log,) = [log for log in stage.logs if log.stem == part.stem]
    others = sum(other.read_bytes().count(b"\n") - 1 for other in stage.logs if other != log)
    assert rollouts_on_disk(stage.folder) == len(read_part(part)) + others
    stage.sample()
    assert stage.bytes() == whole


def test_a_batch_whose_log_was_whole_becomes_a_part_without_a_policy(stage, whole, monkeypatch):
    from ablation.study import stage_writer

    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(stage_writer, "write_part", die)
    with pytest.raises(KeyboardInterrupt):
        stage.sample()
    monkeypatch.undo()
    there = rollouts_on_disk(stage.folder)
    stage.sample()
    assert len(stage.policy.asked) == ROLLOUTS - there
    assert stage.bytes() == whole


def test_a_disk_that_is_full_is_one_clear_error_and_the_same_command_goes_on(stage, whole):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limit[1]))  # the kernel refuses to make any file longer
    try:
        with pytest.raises(DiskError, match=r"inflight/part-00\d.jsonl: could not be written: File too large") as raised:
            stage.sample()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "run the same command again" in raised.value.hint
    assert 0 < rollouts_on_disk(stage.folder) < ROLLOUTS
    assert any(not log.read_bytes().endswith(b"\n") for log in stage.logs)
    stage.sample()
    assert stage.bytes() == whole


def test_a_file_in_the_place_of_the_folder_in_flight_is_a_clear_error(stage, whole):
    stage.folder.mkdir(parents=True)
    (stage.folder / "inflight").write_text("mine")
    with pytest.raises(DiskError, match=r"inflight/part-00\d.jsonl: could not be written"):
        stage.sample()
    (stage.folder / "inflight").unlink()
    stage.sample()
    assert stage.bytes() == whole


def test_ctrl_c_keeps_what_had_ended(stage):
    stage.policy.ended = dies_after(9, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        stage.sample()
    assert rollouts_on_disk(stage.folder) == 9


def test_an_engine_that_is_started_again_is_not_counted_as_sampling(stage, monkeypatch):
    seen = []
    monkeypatch.setattr(stage.policy, "prepare", lambda: seen.append("prepared"))
    monkeypatch.setattr(Quiet, "stage", lambda self, *told: seen.append("the stage begins"))
    stage.sample()
    assert seen == ["prepared", "the stage begins"]


@pytest.mark.parametrize(("field", "value"), [("family", "other"), ("arm", "C"), ("update", 3), ("logprob_kind", "processed")])
def test_a_rollout_that_says_that_it_is_of_another_stage_is_refused(stage, field, value):
    stopped(stage, 4)
    log = stage.logs[0]
    info, rollouts = read_log(log)
    log.unlink()
    append_rollouts(log, info, [replace(rollouts[0], **{field: value}), *rollouts[1:]])
    with pytest.raises(IntegrityError, match=rf"rollout \S+ #\d has another {field} than its stage"):
        stage.sample()
