import pytest

from ablation.errors import GateError, IntegrityError
from ablation.plan.deviations import deviations_path, record_deviation
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import check_journal
from ablation.rollouts.seen import check_seen, deviations_of_run, seen_so_far
from ablation.study.deviations import take_up_deviations
from ablation.study.journal import Journal
from tests.verdict.study import lock_small, start_run, tell, write_stage, write_stop


@pytest.fixture
def study(tmp_path):
    locked = lock_small(tmp_path / "plans")
    return start_run(tmp_path / "run", locked), locked


def seen(run, locked):
    return seen_so_far(run.root, check_journal(run.root, locked.digest))[0]


def of_run(run, locked):
    return deviations_of_run(run.root, locked, check_journal(run.root, locked.digest))


def take_up(run, locked):
    journal = Journal(run.journal, locked.digest)
    try:
        return take_up_deviations(run, locked, journal)
    finally:
        journal.close()


def test_what_has_been_seen_grows_with_the_run(study):
    run, locked = study
    assert seen(run, locked) == "nothing"
    tell(run, locked, "runner_started")
    assert seen(run, locked) == "nothing"
    tell(run, locked, "part_written", stage="main/start/sweep")
    assert seen(run, locked) == "progress"
    write_stage(run, locked, "main", "start")
    assert seen(run, locked) == "progress"
    write_stage(run, locked, "main", "C")
    assert seen(run, locked) == "results"


def test_a_stopped_arm_is_a_result_and_so_is_a_verdict(study, tmp_path):
    run, locked = study
    run.arm("main", "N").mkdir(parents=True)
    write_stop(run, locked, "main", "N", {"rule": "logprob_fell"})
    assert seen(run, locked) == "results"
    other = start_run(tmp_path / "other", locked)
    other.verdict.write_text('{"journal": null, "arms": []}')
    assert seen(other, locked) == "nothing"
    other.verdict.write_text('{"journal": null, "arms": [{"label": "STABLE"}]}')
    assert seen(other, locked) == "results"


def test_rollouts_that_the_journal_does_not_know_count_as_seen(study):
    run, locked = study
    folder = write_stage(run, locked, "main", "start")
    (folder / "stage.json").unlink()
    run.journal.unlink()
    assert seen(run, locked) == "progress"


@pytest.mark.parametrize(("said", "allowed"), [("nothing", False), ("progress", True), ("results", True)])
def test_less_than_the_truth_is_refused_more_is_not(study, said, allowed):
    run, locked = study
    write_stage(run, locked, "main", "start")
    state = check_journal(run.root, locked.digest)
    if allowed:
        check_seen(said, run.root, state)
    else:
        with pytest.raises(GateError, match="--seen nothing is not so: the journal's first stage_sampled is of 20") as caught:
            check_seen(said, run.root, state)
        assert caught.value.hint.endswith("--seen progress.")


def test_a_head_that_a_deviation_kept_is_of_one_run_of_the_plan(study, tmp_path):
    """A plan may have runs with several backends; the deviation was written beside the first."""
    run, locked = study
    tell(run, locked, "runner_started")
    write_stage(run, locked, "main", "start")
    state = check_journal(run.root, locked.digest)
    whose = {"folder": run.root.name, "first": state.chain.digests[0]}
    record_deviation(locked, reason="Done otherwise here.", seen="progress", journal=state.head, run=whose)
    other = start_run(tmp_path / "run-vllm", locked)
    tell(other, locked, "runner_started")
    assert [one.number for one in of_run(other, locked)] == [1]
    assert [one.number for one in of_run(run, locked)] == [1]
    moved = run.root.rename(tmp_path / "moved")
    (tmp_path / "moved" / "journal.jsonl").write_bytes((moved / "journal.jsonl").read_bytes().split(b"\n")[0] + b"\n")
    for path in moved.glob("*/*/*/stage.json"):
        path.unlink()  # the journal's tail is cut off, and what it told of is gone
    with pytest.raises(IntegrityError, match="but deviation 1 was written when it had"):
        of_run(RunFolder(moved), locked)
    other.root.rename(tmp_path / "run")  # another journal in the folder of the first
    with pytest.raises(IntegrityError, match="deviation 1"):
        of_run(RunFolder(tmp_path / "run"), locked)


def test_taking_up_copies_and_tells_each_once(study):
    run, locked = study
    assert take_up(run, locked) == [] and not run.deviations.exists()
    for number in (1, 2):
        record_deviation(locked, reason=f"Deviation number {number}.", seen="nothing")
        assert len(take_up(run, locked)) == number
        assert len(take_up(run, locked)) == number
    assert run.deviations.read_bytes() == deviations_path(locked.path).read_bytes()
    told = [event for event in check_journal(run.root, locked.digest).events if event["event"] == "deviation"]
    assert [(event["number"], event["reason"]) for event in told] == [(1, "Deviation number 1."), (2, "Deviation number 2.")]
    assert [one.number for one in of_run(run, locked)] == [1, 2]


def test_a_killed_taking_up_is_made_good(study):
    run, locked = study
    record_deviation(locked, reason="Deviation number 1.", seen="nothing")
    run.deviations.write_bytes(deviations_path(locked.path).read_bytes())  # copied, and killed before the event
    assert [one.number for one in of_run(run, locked)] == [1]
    take_up(run, locked)
    assert [event["event"] for event in check_journal(run.root, locked.digest).events] == ["deviation"]


def test_one_that_the_run_does_not_know_yet_counts(study):
    run, locked = study
    record_deviation(locked, reason="Deviation number 1.", seen="nothing")
    assert [one.number for one in of_run(run, locked)] == [1]


def test_a_cut_of_the_plans_file_is_found_by_the_runs_copy(study):
    run, locked = study
    for number in (1, 2):
        record_deviation(locked, reason=f"Deviation number {number}.", seen="nothing")
    take_up(run, locked)
    beside = deviations_path(locked.path)
    for left in (beside.read_bytes().splitlines(keepends=True)[0], None):
        if left is None:
            beside.unlink()
        else:
            beside.write_bytes(left)
        with pytest.raises(IntegrityError, match="its tail was cut off"):
            of_run(run, locked)
        with pytest.raises(IntegrityError, match="its tail was cut off"):
            take_up(run, locked)


def test_a_cut_of_both_files_is_found_by_the_journal(study):
    run, locked = study
    for number in (1, 2):
        record_deviation(locked, reason=f"Deviation number {number}.", seen="nothing")
    take_up(run, locked)
    for path in (run.deviations, deviations_path(locked.path)):
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(IntegrityError, match="has 1 deviations, but the journal tells of 2"):
        of_run(run, locked)


def test_a_deviation_written_again_is_found_by_the_journal(study):
    run, locked = study
    record_deviation(locked, reason="What was really done.", seen="results")
    take_up(run, locked)
    deviations_path(locked.path).unlink()
    record_deviation(locked, reason="Something that looks better.", seen="nothing")
    run.deviations.write_bytes(deviations_path(locked.path).read_bytes())
    with pytest.raises(IntegrityError, match="is not deviation 1 as the journal has it"):
        of_run(run, locked)


def test_a_deviation_remembers_the_journal_of_its_time(study):
    run, locked = study
    tell(run, locked, "runner_started")
    tell(run, locked, "runner_started")
    head = check_journal(run.root, locked.digest).head
    record_deviation(locked, reason="Deviation number 1.", seen="nothing", journal=head)
    run.journal.write_bytes(run.journal.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(IntegrityError, match="has 1 lines, but deviation 1 was written when it had 2"):
        of_run(run, locked)
