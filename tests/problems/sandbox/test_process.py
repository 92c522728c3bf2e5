import json
import marshal
import os
import signal
import subprocess
import sys
import time

import pytest

from ablation.problems.sandbox.failure import SandboxError
from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.memory import processes_of
from ablation.problems.sandbox.process import Ended, Sandbox

from .needs import needs_sandbox

pytestmark = needs_sandbox
LOOK = """
import os
def f():
    def open_(n):
        try: os.fstat(n)
        except OSError: return False
        return True
    return {
        "root": sorted(os.listdir("/")),
        "sandbox": sorted(os.listdir("/sandbox")),
        "work": os.listdir("/work"),
        "here": os.getcwd(),
        "devices": sorted(os.listdir("/dev")),
        "environment": dict(os.environ),
        "descriptors": [n for n in range(200) if open_(n)],
        "packages": [f for f in os.listdir(os.__file__.rpartition("/")[0] if hasattr(os, "__file__") else "/python") if "-packages" in f],
        "users": len({*os.getresuid()}),
        "root user": 0 in os.getresuid() + os.getresgid(),
        "groups": [g for g in os.getgroups() if g not in (65534, os.getgid())],
        "first": os.getppid(),
    }
"""


def started(source: str, limits: Limits | None = None, entry_point: str = "f") -> Sandbox:
    return Sandbox(b"S", {"source": source, "entry_point": entry_point}, limits or Limits())


def call(box: Sandbox, *args: object, seconds: float = 10) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + seconds
    box.send(b"C", marshal.dumps((args, {})), deadline)
    return box.receive(deadline, 1 << 20)


def loaded(box: Sandbox) -> Sandbox:
    box.ready()
    assert box.receive(time.monotonic() + 10, 1000) == (b"L", b"")
    return box


def test_what_a_program_sees():
    with started(LOOK) as box:
        kind, content = call(loaded(box))
    seen = json.loads(content)
    assert kind == b"V"
    assert (
        {"python", "sandbox", "work", "dev", "lib"}
        <= set(seen["root"])
        <= {"python", "sandbox", "work", "dev", "lib", "lib64", "program"}
    )
    assert seen["sandbox"] == ["inside.py", "values.py"]
    assert (seen["work"], seen["here"], seen["devices"]) == ([], "/work", ["null", "urandom"])
    assert set(seen["environment"]) <= {"LD_LIBRARY_PATH", "PWD", "LC_CTYPE"}
    assert len(seen["descriptors"]) == 4
    assert (seen["users"], seen["root user"], seen["groups"], seen["first"]) == (1, False, [], 1)


def test_values_come_back_and_each_has_its_own_nonce():
    with started("def f(*a): return sorted(a)") as box:
        loaded(box)
        first = box._nonce
        assert call(box, 3, 1, 2) == (b"V", b"[1,2,3]")
        assert box._nonce != first
        assert call(box, "b", "a") == (b"V", b'["a","b"]')


def test_the_process_is_another_user_each_time():
    users = []
    for _ in range(2):
        with started("import os\ndef f(): return os.getuid()") as box:
            users.append(call(loaded(box)))
    assert os.geteuid() != 0 or users[0] != users[1]


def test_time_is_up():
    with started("def f():\n    while True: pass") as box:
        loaded(box)
        began = time.monotonic()
        with pytest.raises(Ended, match="timeout"):
            call(box, seconds=0.5)
        assert 0.5 <= time.monotonic() - began < 1.5


def test_a_large_value_goes_in_and_out():
    text = "x" * 900_000
    with started("def f(a): return a") as box:
        loaded(box)
        assert call(box, text) == (b"V", f'"{text}"'.encode())


def test_missing_function():
    with started("g = 1") as box:
        box.ready()
        assert box.receive(time.monotonic() + 10, 1000) == (b"M", b"")


def test_the_end_leaves_nothing():
    source = "import os, time\nfor _ in range(3):\n    if os.fork() == 0: time.sleep(600)\ndef f(): return 1"
    with started(source) as box:
        loaded(box)
        namespace = box._namespace
        assert len(processes_of(namespace)) == 5
        before = len(os.listdir("/proc/self/fd"))
    assert processes_of(namespace) == []
    assert len(os.listdir("/proc/self/fd")) < before


def test_nothing_stays_open_in_the_parent():
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with started("def f(): return 1") as box:
            loaded(box)
    with started("def f(): return 1"):
        pass  # ended before it was ready
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_it_dies_with_its_parent():
    code = (
        "import time\nfrom tests.problems.sandbox.test_process import started, loaded\n"
        "box = loaded(started('def f(): return 1'))\nprint(box._namespace, flush=True)\ntime.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    namespace = int(parent.stdout.readline())
    assert processes_of(namespace)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while processes_of(namespace) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_of(namespace) == []


def test_a_sandbox_that_cannot_start_says_what_bubblewrap_said(tmp_path, monkeypatch):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(SandboxError, match=r"could not be started \(exited\): bwrap: No permissions to create new namespace"),
        started("") as box,
    ):
        box.ready()
