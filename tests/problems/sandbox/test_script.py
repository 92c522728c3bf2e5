import pytest

from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.script import run_script

from .needs import needs_sandbox

pytestmark = needs_sandbox


def run(program: str, given: bytes = b"", seconds: float = 10, limits: Limits | None = None):
    return run_script(program.encode(), given, limits or Limits(), seconds)


def test_a_script_with_real_pipes_and_no_arguments():
    ran = run(
        "import os, stat, sys\nprint(sys.argv[1:], __name__, os.listdir('.'), [stat.S_ISFIFO(os.fstat(n).st_mode) for n in (0, 1)])"
    )
    assert ran.output == b"[] __main__ [] [True, True]\n"
    assert ran.failed is None


def test_more_than_a_pipe_holds_in_both_directions():
    given = b"".join(b"%d\n" % n for n in range(60_000))
    ran = run("import sys\nfor line in sys.stdin: sys.stdout.write(line)", given)
    assert (ran.output == given, ran.failed) == (True, None)


def test_input_that_nobody_reads_does_not_hold_the_program_up():
    assert run("print(1)", b"x" * 1_000_000).output == b"1\n"
    assert run("import os\nos.close(0)\nprint(1)", b"x" * 1_000_000).output == b"1\n"


def test_text_is_utf_8():
    assert run("print(input()[::-1])", "äß語\n".encode()).output == "語ßä\n".encode()


@pytest.mark.parametrize(
    ("program", "failed"),
    [
        ("raise SystemExit(3)", "runtime_error"),
        ("import os\nos.kill(os.getpid(), 11)", "runtime_error"),
        ("def", "runtime_error"),
        ("while True: pass", "timeout"),
        ("import time\ntime.sleep(60)", "timeout"),
        ("while True: print('x' * 100)", "output_limit"),
        ("import os, time\nif os.fork() == 0: time.sleep(60)\nprint(1)", "left_processes"),
        ("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1)'], check=True)", None),
        ("import sys\nprint(1, file=sys.stderr)", None),
    ],
)
def test_how_it_ended(program, failed):
    ran = run(program, seconds=1.5)
    assert ran.failed == failed
    assert ran.seconds < 2.5


def test_seconds_are_those_of_the_program():
    assert 0.3 <= run("import time\ntime.sleep(0.3)").seconds < 3


def test_processor_time_has_its_own_limit():
    assert run("while True: pass", limits=Limits(seconds=1), seconds=20).failed == "timeout"
