from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

CODE = "import sys; sys.argv = ['ablation', 'plan', 'schema']\nimport ablation.__main__ as process\n{before}\nprocess.start()"
LONG = 200
"""Seconds in which even a busy machine starts and ends a process."""


def started(before: str) -> subprocess.Popen:
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", CODE.format(before=before)], **told)


def main_that(does: str) -> str:
    return f"import ablation.cli.main as command\nimport os, signal, time\n{does}\ncommand.main = main"


def test_an_interrupt_that_a_destructor_swallows_comes_again():
    does = """
class Group:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
def main():
    one = Group()
    del one
    time.sleep(600)
    raise SystemExit(0)
"""
    with started(main_that(does)) as process:
        _, errors = process.communicate(timeout=LONG)
    assert (process.returncode, "ignored" in errors) == (130, False)


def test_an_interrupt_that_became_another_error_is_one():
    does = """
class Named:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt
def main():
    type("Owner", (), {"field": Named()})
"""
    with started(main_that(does)) as process:
        _, errors = process.communicate(timeout=LONG)
    assert (process.returncode, errors) == (130, "\ninterrupted: run the same command again\n")


def test_what_is_no_interrupt_is_shown():
    with started(main_that("def main():\n    raise ValueError('ours')")) as process:
        _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 1 and errors.endswith("ValueError: ours\n")


@pytest.mark.parametrize("moment", range(8))
def test_ctrl_c_while_modules_are_imported(moment):
    with started("print('ready', flush=True)") as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(random.Random(moment).uniform(0.0, 0.4))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LONG)
    assert "Traceback" not in errors
    assert process.returncode in (130, 0)  # 0: it was done before


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere(tmp_path, closed):
    does = "def main():\n    print('out', sys.stdout.isatty())\n    print('err', file=sys.stderr)\n    open('made', 'w').close()"
    program = CODE.format(before=main_that(does))
    ended = subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program], cwd=tmp_path, check=False)
    assert (ended.returncode, (tmp_path / "made").read_text()) == (0, "")


def test_words_of_the_command_line_are_made_safe():
    command = [sys.executable, "-m", "ablation", "ledger", "show", "a\u200b\u202eb"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "a\ufffd\ufffdb" in ended.stderr
