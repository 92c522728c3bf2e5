import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from ablation.problems.workers import Failure, Limits, close_workers, run_items

WORK = "tests.problems.work_for_tests"
LIMITS = Limits(seconds=0.5, memory=1 << 29)


def run(*items, limits=LIMITS, workers=1):
    return run_items(WORK, list(items), limits=limits, workers=workers)


def gone(process: int) -> bool:
    """Dead within ten seconds; a dead process that nobody has asked for yet is gone, too."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def echoes(count: int) -> list:
    return [["echo", number] for number in range(count)]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order(workers):
    assert run(*echoes(150), workers=workers) == list(range(150))
    assert run(workers=workers) == []


def test_what_goes_over_its_time_is_killed_and_the_others_are_not():
    begun = time.process_time()
    assert run(["echo", 1], ["spin"], ["echo", "ü"], ["spin"]) == [
        1,
        Failure("time", "exit code -27"),
        "ü",
        Failure("time", "exit code -27"),
    ]
    assert time.process_time() - begun < 1  # the time was spent elsewhere


def test_what_goes_over_its_memory_is_killed_and_the_others_are_not():
    assert run(["echo", 1], ["eat"], ["echo", 2], limits=Limits(30, 1 << 29)) == [1, Failure("memory", "exit code 77"), 2]


def test_a_crash_is_tried_twice_and_says_nothing_about_the_item(tmp_path):
    found = run(["die", signal.SIGSEGV], ["echo", 1], ["die_once", str(tmp_path / "mark")], ["echo", 2])
    assert found == [Failure("crash", "exit code -11"), 1, "alive", 2]


def test_output_and_input_of_a_package_do_not_reach_the_messages():
    assert run(["print"], ["echo", 3]) == ["", 3]


def test_a_worker_stays_for_the_next_call_and_its_child_dies_with_it():
    [[child, worker]], [again] = run(["pid"]), run(["pid"])
    assert again == [child, worker]
    close_workers()
    assert gone(child) and gone(worker)
    [[_, other]] = run(["pid"])
    assert other != worker


def test_a_worker_that_was_killed_from_outside_is_replaced():
    [[_, worker]] = run(["pid"])
    os.kill(worker, signal.SIGKILL)
    assert run(*echoes(3)) == [0, 1, 2]
    assert run(["kill_parent"], ["echo", 5]) == [Failure("crash", "the worker died"), 5]


def test_no_answer_in_time_is_the_machines_fault():
    @dataclass(frozen=True)
    class Short(Limits):
        wall_seconds = 0.3

    assert run(["sleep"], ["echo", 1], limits=Short(5.0, 1 << 29)) == [Failure("stalled"), 1]


def test_a_worker_that_cannot_start_says_why():
    [failure] = run_items("tests.problems.no_such_module", [1])
    assert failure.kind == "start" and "no_such_module" in failure.detail


def test_threads_share_the_workers():
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: run(*echoes(40), ["echo", number]), range(8)))
    assert found == [[*range(40), number] for number in range(8)]


PROGRAM = """
import os, sys
from ablation.problems.workers import Limits, run_items
run_items("tests.problems.work_for_tests", [["mark", sys.argv[1]]] + [["sleep"]] * 200, limits=Limits(5, 1 << 29), workers=2)
"""


def test_a_program_that_is_interrupted_ends_at_once_and_so_do_its_workers(tmp_path):
    mark = tmp_path / "pids"
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(mark)], stderr=subprocess.PIPE)
    while not (mark.exists() and mark.read_text().endswith("\n")):
        time.sleep(0.05)
        assert program.poll() is None
    time.sleep(0.3)  # both workers are in the middle of an item
    program.send_signal(signal.SIGINT)
    assert program.communicate(timeout=20)[1].decode().strip().endswith("KeyboardInterrupt")
    assert all(gone(int(process)) for process in mark.read_text().split())


def test_a_fork_of_the_program_does_not_touch_its_workers():
    [[_, worker]] = run(["pid"])
    child = os.fork()
    if child == 0:
        close_workers()
        os._exit(0)
    os.waitpid(child, 0)
    assert run(["pid"])[0][1] == worker


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    yield
    close_workers()


def test_a_file_of_the_working_folder_is_no_module_of_a_worker(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path or str(Path(__file__).parents[2]) for path in sys.path])
    close_workers()
    try:
        assert run(*echoes(2)) == [0, 1]
    finally:
        close_workers()
