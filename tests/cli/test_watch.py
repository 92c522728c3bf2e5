"""`ablation status --watch`: on a terminal until Ctrl-C, as lines elsewhere, on a run that goes on meanwhile."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

import pytest

from ablation.study.journal import Journal
from ablation.study.runlock import exclusive
from tests.rollouts.test_address import RECORD
from tests.study.mini import ROOT, ablation, command, environment

PATIENCE = 90.0


@pytest.fixture
def run(tmp_path):
    shutil.copytree(RECORD, tmp_path / "run")
    return tmp_path / "run"


def arguments(run) -> tuple[str, ...]:
    return ("status", "--watch", "--plan", str(run / "plan.yaml"), "--run", str(run))


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str, width: int = 80, height: int = 30, **more: str) -> None:
        self.outer, inner = pty.openpty()
        self.resize(width, height)
        given = {name: value for name, value in environment().items() if name != "COLUMNS"} | {"TERM": "xterm-256color"} | more
        self.process = subprocess.Popen(
            command(*words), cwd=ROOT, env=given, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
        )
        os.close(inner)
        self.seen = ""

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def until(self, pattern: str, start: int = 0) -> str:
        """Read until what came after `start` characters matches."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.seen[start:], re.S):
            assert time.monotonic() < deadline, self.seen[-2000:]
            if select.select([self.outer], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.outer, 65536).decode(errors="replace")
                except OSError:
                    break
        return self.seen[start:]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        self.until(r"\x1b\[\?1049l.*next ", self.seen.rfind("\x1b[?1049h"))
        code = self.process.wait(timeout=PATIENCE)
        os.close(self.outer)
        return code


def test_on_a_terminal_until_ctrl_c_with_a_new_size_and_a_new_event(run):
    shown = Terminal(*arguments(run))
    shown.until(r"\x1b\[\?1049h.*main/N +█+ 5/5.*next ")
    before = len(shown.seen)
    shown.resize(60, 20)
    narrow = shown.until(r"main/N +5/5.*next ", before)
    assert "█" not in narrow.split("main/C", 1)[1]
    before = len(shown.seen)
    journal = Journal(run / "journal.jsonl", json.loads((run / "plan.lock").read_bytes())["digest"])
    journal.append("runner_started")
    journal.close()
    shown.until(rf"{journal.events[-1]['time'][11:19]}  runner started", before)
    assert shown.end(signal.SIGINT) == 0
    assert "interrupted" not in shown.seen and "Traceback" not in shown.seen


def test_a_terminal_is_put_back_when_it_is_terminated(run):
    shown = Terminal(*arguments(run))
    shown.until(r"\x1b\[\?1049h.*next ")
    assert shown.end(signal.SIGTERM) == 143


def test_no_colour_where_none_is_wanted(run):
    shown = Terminal(*arguments(run), NO_COLOR="1")
    shown.until(r"\x1b\[\?1049h.*next ")
    assert shown.end(signal.SIGINT) == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown.seen)


def test_without_a_terminal_there_are_lines_while_a_runner_is_at_work(run):
    watching = subprocess.Popen(
        command(*arguments(run)), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with exclusive(run):
        lines = []
        for line in watching.stdout:
            lines.append(line)
            if line.startswith("next "):
                break
        time.sleep(3)
        with (run / "journal.jsonl").open("a") as journal:
            for second in (1, 2):
                event = {"time": f"2026-11-30T12:00:0{second}+00:00", "event": "part_written", "stage": "main/N/x", "rollouts": 7}
                journal.write(json.dumps(event) + "\n")
        for line in watching.stdout:
            lines.append(line)
            if "12:00:02" in line:
                break
    rest, errors = watching.communicate(timeout=PATIENCE)
    assert watching.returncode == 0 and not errors and not rest
    assert [line.strip() for line in lines[-2:]] == [f"12:00:0{second}  part written main/N/x: 7 rollouts" for second in (1, 2)]
    assert "\x1b" not in "".join(lines)


def test_a_dumb_terminal_gets_lines_and_json_is_refused(run):
    done = ablation(ROOT, *arguments(run), more={"TERM": "dumb"})
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith("next ")
    refused = ablation(ROOT, *arguments(run), "--json")
    assert refused.returncode == 2 and refused.stderr == "--watch is for eyes; --json says once how far it is\n"
