"""The gate before the second family, at an open study whose stages are there already."""

import pytest

from ablation.cli.watch import Watcher
from ablation.errors import GateError, IntegrityError
from ablation.files import write_json
from ablation.plan.deviations import deviations_path, record_deviation
from ablation.rollouts.folder import measures_file
from ablation.rollouts.journal_chain import read_journal
from ablation.study.deviations import known_deviations
from ablation.study.run_folder import own_plan
from ablation.study.runner import open_study
from tests.verdict.study import lock_small, start_run, write_stage, write_study


class Said:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


@pytest.fixture
def study(tmp_path):
    """(run, plan): C is damaged in both families and N the first stable arm; X is there in the second one, too."""
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    write_stage(run, locked, "replication", "X")
    for stage in run.root.glob("*/*/readout"):
        write_json(measures_file(stage), {})
    return run, locked


def run_arm(run, locked, arm) -> list[str]:
    said = Said()
    with open_study(locked, run.root, said) as opened:
        opened.run_arm("replication", arm)
    return said.lines


def test_the_gate_opens_through_a_deviation_that_names_it(study):
    run, locked = study
    assert run_arm(run, locked, "N") == ["replication/N: finished already"]
    with pytest.raises(GateError, match="that is N, not X") as caught:
        run_arm(run, locked, "X")
    assert "ablation plan deviate PLAN --opens replication" in caught.value.hint
    record_deviation(locked, reason="X is run in new seeds, too.", seen="results")
    with pytest.raises(GateError):
        run_arm(run, locked, "X")
    record_deviation(locked, reason="X is run in new seeds, too.", seen="results", opens=["replication"])
    lines = run_arm(run, locked, "X")
    assert lines[-2:] == [
        "replication/X: not what the plan replicates; it runs under deviation 2",
        "replication/X: finished already",
    ]
    assert sum("note: deviation" in line for line in lines) == 2


def test_a_deviation_that_is_written_while_a_study_is_open_is_taken_up_before_the_next_arm(study):
    run, locked = study
    with open_study(locked, run.root, Said()) as opened:
        with pytest.raises(GateError):
            opened.run_arm("replication", "X")
        record_deviation(locked, reason="X is run in new seeds, too.", seen="results", opens=["replication"])
        opened.run_arm("replication", "X")
    assert [event["number"] for event in read_journal(run.journal) if event["event"] == "deviation"] == [1]


def test_a_runner_refuses_a_cut_journal(study):
    run, locked = study
    rows = run.journal.read_bytes().splitlines(keepends=True)
    run.journal.write_bytes(b"".join(rows[:-1]))
    with pytest.raises(IntegrityError, match="does not tell of the stage replication/X/readout"):
        run_arm(run, locked, "N")
    assert run.journal.read_bytes() == b"".join(rows[:-1])


def test_a_run_that_is_judged_by_its_own_copy_of_the_plan_has_its_own_deviations(study):
    run, locked = study
    record_deviation(locked, reason="X is run in new seeds, too.", seen="results")
    own = own_plan(run.root)
    assert (len(known_deviations(locked, run.root)), len(known_deviations(own, run.root))) == (1, 0)
    assert Watcher(own, run.root, "").look().note is None
    with open_study(locked, run.root, Said()):
        pass  # takes it up
    deviations_path(locked.path).unlink()
    assert (len(known_deviations(locked, run.root)), len(known_deviations(own, run.root))) == (0, 1)
