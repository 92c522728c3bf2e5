"""Real processes: whoever dies, those that it started go too; a thread that ends takes nobody with it."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ablation.policy.lasting import in_lasting_thread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")

CHILD = """
import os, signal, sys, time
from ablation.policy.lasting import signal_at_end_of
signal_at_end_of(int(sys.argv[1]), signal.Signals(int(sys.argv[2])))
signal.signal(signal.SIGCONT, lambda *_: os._exit(0))
print("ready", flush=True)
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys, threading, time
from ablation.policy.lasting import in_lasting_thread
def start():
    child = in_lasting_thread(lambda: subprocess.Popen([sys.executable, "-c", *sys.argv[1:2], str(os.getpid()), sys.argv[2]]))
    print(child.pid, flush=True)
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(600)
"""


def state(pid: int) -> str:
    """Its letter in /proc; Z if there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def lives(pid: int) -> bool:
    return state(pid) != "Z"


def stop(pid: int) -> None:
    """Stopped when this returns."""
    os.kill(pid, signal.SIGSTOP)
    while state(pid) != "T":
        time.sleep(0.01)


def gone(pid: int, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not lives(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGCONT])
def test_a_stopped_process_goes_with_the_one_that_started_it_and_not_with_the_thread(number):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD, str(int(number))], stdout=subprocess.PIPE, text=True)
    child = 0
    try:
        said = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        child = int((said - {"ready"}).pop())
        time.sleep(0.2)
        assert lives(child), "the thread that asked for it has ended"
        stop(child)
        parent.kill()
        assert gone(child)
    finally:
        parent.kill()
        parent.communicate()
        if child and lives(child):
            os.kill(child, signal.SIGKILL)


def test_one_whose_parent_died_before_it_asked_goes_at_once():
    done = subprocess.run([sys.executable, "-c", CHILD, str(os.getpid() + 1), "9"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def test_what_is_raised_is_raised_here():
    with pytest.raises(FileNotFoundError):
        in_lasting_thread(lambda: subprocess.Popen(["/nowhere/at/all"]))
    assert in_lasting_thread(threading.current_thread) is not threading.current_thread()


def test_a_fork_has_a_thread_of_its_own():
    in_lasting_thread(os.getpid)
    forked = multiprocessing.get_context("fork").Process(target=lambda: os._exit(in_lasting_thread(os.getpid) != os.getpid()))
    forked.start()
    forked.join(10)
    assert forked.exitcode == 0
