"""Running a command: how each way to end is told, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.study import command as module
from ablation.study.command import find_program, run_command

ROOT = Path(__file__).parents[2]


def run(folder: Path, *command: str, seconds: float | None = 20, **environment: str):
    ended = run_command(list(command), folder=folder, environment=os.environ | environment, log=folder / "log", seconds=seconds)
    return ended, (folder / "log").read_bytes()


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    for _ in range(100):
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


def test_output_exit_code_folder_and_environment(tmp_path):
    ended, log = run(tmp_path, "sh", "-c", 'pwd; echo "$GIVEN" >&2; exit 3', GIVEN="a b")
    assert (ended.exit_code, ended.why) == (3, None)
    assert ended.words == "ended with exit code 3 after 0 s"
    assert log.decode().split("\n") == [str(tmp_path), "a b", ""]


def test_there_is_no_shell_and_nothing_to_read(tmp_path):
    ended, log = run(tmp_path, "echo", "$HOME", "a  b;")
    assert (ended.exit_code, log) == (0, b"$HOME a  b;\n")
    ended, log = run(tmp_path, "cat")
    assert (ended.exit_code, log) == (0, b"")


def test_a_signal_and_a_program_that_cannot_be_run(tmp_path):
    ended, _ = run(tmp_path, "sh", "-c", "kill -SEGV $$")
    assert (ended.exit_code, ended.words) == (-signal.SIGSEGV, "was killed by SIGSEGV after 0 s")
    (tmp_path / "text").write_text("no program")
    ended, _ = run(tmp_path, "./text")
    assert ended.exit_code is None and ended.words == "could not be run: Permission denied"


def test_a_timeout_ends_the_whole_group(tmp_path):
    ended, log = run(tmp_path, "sh", "-c", "sleep 60 & echo $!; trap '' TERM; wait", seconds=0.5)
    assert ended.words == "had not ended after 0.5 s, the plan's timeout, and was killed" and ended.seconds < 5
    assert gone(int(log))


def test_what_it_leaves_running_is_ended_with_it(tmp_path):
    ended, log = run(tmp_path, "sh", "-c", "sleep 60 & echo $!")
    assert ended.exit_code == 0 and ended.seconds < 5
    assert gone(int(log))


def test_a_process_that_left_the_group_holds_nothing_up_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    ended, log = run(
        tmp_path,
        sys.executable,
        "-c",
        "import os, subprocess; print(subprocess.Popen(['sleep', '30'], start_new_session=True).pid, flush=True)",
    )
    assert ended.exit_code == 0 and ended.seconds < 5
    os.kill(int(log), signal.SIGKILL)


def test_killing_what_holds_the_command_is_a_failure_and_ends_it(tmp_path):
    ended, log = run(tmp_path, "sh", "-c", "echo $$; kill -9 $PPID; sleep 30")
    assert ended.exit_code is None and ended.words == "could not be run: what held it was killed"
    assert gone(int(log))


def test_a_flood_keeps_its_beginning_and_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HEAD_BYTES", 1000)
    monkeypatch.setattr(module, "TAIL_BYTES", 100)
    ended, log = run(tmp_path, sys.executable, "-c", "print('begin'); print('x' * 500_000); print('end')")
    assert ended.exit_code == 0
    head, _, tail = log.partition(b"\n[498911 bytes of output were left out here]\n")  # 500,011 less 1,000 and 100
    assert head.startswith(b"begin\nxxx") and len(head) == 1000
    assert tail.endswith(b"xxx\nend\n") and len(tail) == 100


RUNNER = """
import sys
from pathlib import Path
from ablation.study.command import run_command
import os
folder = Path(sys.argv[1])
run_command(["sh", "-c", "echo $$ > pid.new; mv pid.new pid; sleep 60"], folder=folder, environment=os.environ, log=folder / "log", seconds=None)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_command_outlives_its_runner(tmp_path, number):
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path)], env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL
    )
    for _ in range(200):
        if (tmp_path / "pid").is_file():
            break
        time.sleep(0.05)
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    runner.send_signal(number)
    runner.wait(10)
    assert gone(pid)


def test_the_program_is_looked_for_where_it_will_be_run(tmp_path):
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match=r"arms\.E: there is no program `\./train\.sh` at "):
        find_program(["./train.sh"], tmp_path, "arms.E")
    (tmp_path / "train.sh").chmod(0o755)
    assert find_program(["./train.sh"], tmp_path, "arms.E") == str(tmp_path / "train.sh")
    with pytest.raises(UsageError, match="there is no program `no-such-trainer` on the PATH"):
        find_program(["no-such-trainer"], tmp_path, "arms.E")
    assert find_program(["sh"], tmp_path, "arms.E").endswith("/sh")
