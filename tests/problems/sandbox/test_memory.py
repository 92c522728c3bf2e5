import os
import subprocess
import sys
import time

import pytest

from ablation.problems.sandbox import memory
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


@pytest.mark.parametrize(
    ("code", "least"),
    [
        ("import os; kept = [os.pipe() for _ in range(100)]", 100 * (64 << 10)),
        ("import socket; kept = [socket.socketpair() for _ in range(50)]", 100 * (512 << 10)),
        (
            "import fcntl, tempfile; f = tempfile.TemporaryFile(); [fcntl.lockf(f, 2, 1, 2 * n) for n in range(500)]",
            500 * (64 << 10),
        ),
        ("import threading, ctypes; a = bytearray(b'x') * (64 << 20)", 64 << 20),
    ],
    ids=["pipes", "sockets", "locks", "its first thread has gone"],
)
def test_counts_what_the_kernel_holds_for_them(code, least, monkeypatch):
    leave = f"ctypes.CDLL(None).syscall({93 if os.uname().machine == 'aarch64' else 60}, 0)"
    last = "import threading, time, ctypes; threading.Thread(target=time.sleep, args=(60,)).start(); print(flush=True)"
    child = subprocess.Popen([sys.executable, "-c", f"{code}; {last}; {leave}"], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        time.sleep(0.1)
        assert child.pid in processes_of(OWN)
        monkeypatch.setattr(memory, "processes_of", lambda _: [child.pid])
        assert held_bytes(OWN, None) > least
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
