import os
import subprocess
import sys
import time

from ablation.problems.sandbox.memory import held_bytes, processes_of

OWN = os.stat("/proc/self/ns/pid").st_ino


def test_finds_living_processes_of_a_namespace_and_not_the_dead():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert {os.getpid(), child.pid} <= set(processes_of(OWN))
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet collected
        assert child.pid not in processes_of(OWN)
    finally:
        child.kill()
        child.wait()
    assert processes_of(0) == []


def test_counts_what_processes_hold():
    code = "a = bytearray(b'x') * (64 << 20); print(flush=True); import time; time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        held = held_bytes(OWN, None)
        child.kill()
        child.wait()
        time.sleep(0.1)
        assert held - held_bytes(OWN, None) > 32 << 20
    finally:
        child.kill()
        child.stdout.close()
