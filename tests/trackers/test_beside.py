"""Trackers beside a run: it never waits for them, and a kill never makes a point twice. TensorBoard is the tracker throughout."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.plan.lock import verify_lock
from ablation.trackers import beside
from ablation.trackers.base import Target
from ablation.trackers.beside import trackers_beside
from tests.study.mini import ablation, command, contents, environment, mini_tree, write_plan

from .test_points import RECORD, SERIES
from .test_to_tensorboard import scalars


@pytest.fixture
def run(tmp_path) -> Path:
    shutil.copytree(RECORD, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Other work on the machine must not decide a test."""
    monkeypatch.setattr(beside, "START_PATIENCE", 120.0)
    monkeypatch.setattr(beside, "END_PATIENCE", 120.0)


def tracked(folder: Path, run: Path, during=lambda: None) -> list[str]:
    """What was said while a run of no work at all was tracked in `folder`."""
    said: list[str] = []
    with trackers_beside([Target("tensorboard", str(folder))], verify_lock(RECORD / "plan.yaml"), run, said.append):
        during()
    return said


def test_what_a_run_left_is_sent_before_the_end(tmp_path, run):
    assert tracked(tmp_path / "board", run) == [f"tracker tensorboard: tensorboard --logdir {tmp_path / 'board'}"]
    assert [step for step, _ in scalars(tmp_path / "board", "replication/N")["update/logprob"]] == [1, 2, 3, 4, 5]
    before = {series: scalars(tmp_path / "board", series) for series in SERIES}
    tracked(tmp_path / "board", run)
    assert {series: scalars(tmp_path / "board", series) for series in SERIES} == before


def test_a_tracker_that_cannot_begin_is_refused_before_the_run(tmp_path, run):
    (tmp_path / "file").write_text("")
    begun = []
    with pytest.raises(UsageError, match=r"^--track tensorboard: cannot be used: NotADirectoryError"):
        tracked(tmp_path / "file" / "board", run, lambda: begun.append(1))
    assert not begun


def test_one_that_fails_in_the_middle_is_named_once_and_tried_again(tmp_path, run, monkeypatch):
    board = tmp_path / "board"
    (board / "main").mkdir(parents=True)
    (board / "main" / "C").write_text("in the way")

    def during():
        time.sleep(6)  # two tries
        (board / "main" / "C").unlink()

    said = tracked(board, run, during)
    assert len(said) == 2
    assert said[1].startswith("tracker tensorboard: FileExistsError: ")
    assert said[1].endswith("; it is tried again, and the run goes on all the same")
    assert [step for step, _ in scalars(board, "main/C")["update/logprob"]] == [1, 2, 3, 4, 5]


def test_one_that_hangs_is_ended_and_named(tmp_path, run, monkeypatch):
    monkeypatch.setattr(beside, "END_PATIENCE", 3.0)
    board = tmp_path / "board"
    (board / "main" / "C").mkdir(parents=True)
    os.mkfifo(board / "main" / "C" / "events.out.tfevents.0")  # whoever reads it waits for ever
    started = time.monotonic()
    said = tracked(board, run)
    assert time.monotonic() - started < 30
    assert said[1:] == [
        f"tracker tensorboard: not done after 3 s; `ablation track {run} --to tensorboard=...` sends what is missing"
    ]


def test_one_that_dies_is_named_and_the_run_goes_on(tmp_path, run):
    (tmp_path / "empty").mkdir()  # no run here yet, so it waits

    def during():
        (child,) = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if b"ablation.trackers.process" in path.read_bytes() and _parent(path.parent) == os.getpid()
        ]
        os.kill(child, signal.SIGKILL)
        time.sleep(5)  # until it has been noticed

    said = tracked(tmp_path / "board", tmp_path / "empty", during)
    assert said[1:] == [
        "tracker tensorboard: its process has ended; the run goes on without it, and "
        f"`ablation track {tmp_path / 'empty'} --to tensorboard=...` sends what is missing"
    ]


def test_one_that_not_even_a_kill_ends_holds_no_run(tmp_path, run, monkeypatch):
    """A process that waits for a disk that is gone takes no signal. Here it is stopped, and no signal is sent."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(beside, "END_PATIENCE", 1.0)
    monkeypatch.setattr(beside, "_KILL_PATIENCE", 1.0)
    asked, kill = [], os.killpg
    monkeypatch.setattr(beside.os, "killpg", lambda group, number: asked.append(group))

    def during():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            if b"ablation.trackers.process" in path.read_bytes() and _parent(path.parent) == os.getpid():
                os.kill(int(path.parent.name), signal.SIGSTOP)

    started = time.monotonic()
    said = tracked(tmp_path / "board", tmp_path / "empty", during)
    assert "not done after 1 s" in said[-1] and time.monotonic() - started < 60
    (group,) = asked
    kill(group, signal.SIGKILL)


def _parent(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_a_tracked_run_that_is_killed_and_goes_on_has_the_same_bytes_and_each_point_once(tmp_path):
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    assert ablation(plain, "plan", "lock", str(write_plan(plain, mini_tree()))).returncode == 0
    shutil.copytree(plain / "plans", killed / "plans")
    assert ablation(plain, "run", "--arm", "C").returncode == 0
    arguments = ("run", "--arm", "C", "--track", "tensorboard")
    for awaited in ("update-1/checkpoint/complete.json", "update-2/stage.json"):
        process = subprocess.Popen(command(*arguments), cwd=killed, env=environment(), stderr=subprocess.DEVNULL)
        while process.poll() is None and not (killed / "runs/mini/main/C" / awaited).is_file():
            time.sleep(0.002)
        process.kill()
        process.wait()
    done = ablation(killed, *arguments)
    assert done.returncode == 0, done.stderr
    assert f"tracker tensorboard: tensorboard --logdir {killed / 'tensorboard/mini'}" in done.stderr
    assert contents(killed / "runs/mini") == contents(plain / "runs/mini")
    found = scalars(killed / "tensorboard/mini", "main/C")
    assert [step for step, _ in found["update/grad_norm"]] == [1, 2]
    assert [step for step, _ in found["cells/clean_share"]] == [0, 2]
    sent = ablation(plain, "track", "--to", "tensorboard=board")
    assert sent.stdout.startswith("tensorboard: 4 points sent; ")
    again = scalars(plain / "board", "main/C")
    same = [name for name in again if not name.startswith("speed/")]
    assert {name: found[name] for name in same} == {name: again[name] for name in same}
    ablation(plain, "track", "--to", "tensorboard=board")
    assert scalars(plain / "board", "main/C") == again
