"""Memory that the kernel holds for a program: it is counted, or the call is refused, and the verdict names it."""

import textwrap
import threading
import time

import pytest

from .needs import function, grade, needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.slow]
SMALL = {"memory_mb": 64, "disk_mb": 1}
MOST = 400 << 20  # bytes; the least of these took 700 MB before it was counted
LOOP = "def f(x):\n    k = 0\n    while True:\n        k += 1\n"
ATTACKS = {
    "attributes of a file": (
        "import os\nopen('a', 'w').close()\n" + LOOP + "        os.setxattr('a', f'user.{k}', b'x' * 60000)",
        {"memory_limit"},
    ),
    "links": ("import os\n" + LOOP + "        os.symlink('x' * 4000, str(k))", {"memory_limit", "runtime_error"}),
    "pipes with names": ("import os\n" + LOOP + "        os.mkfifo(str(k))", {"memory_limit", "runtime_error"}),
    "nodes": ("import os, stat\n" + LOOP + "        os.mknod(str(k), stat.S_IFSOCK | 0o600)", {"memory_limit", "runtime_error"}),
    "folders": ("import os\n" + LOOP + "        os.mkdir(str(k))", {"memory_limit", "runtime_error"}),
    "pages that nobody shows": (
        "import mmap\nkept = []\n" + LOOP + "        block = mmap.mmap(-1, 8 << 20)\n        block.write(b'x' * (8 << 20))\n"
        "        block.madvise(mmap.MADV_DONTNEED)\n        kept.append(block)",
        {"memory_limit"},
    ),
    "full pipes": (
        "import os\nkept = []\ndef f(x):\n    while True:\n        if os.fork() == 0:\n            for _ in range(20):\n"
        "                kept.append(os.pipe())\n                os.set_blocking(kept[-1][1], False)\n"
        "                try:\n                    while True: os.write(kept[-1][1], b'x' * 65536)\n                except OSError: pass\n"
        "            while True: pass",
        {"memory_limit", "runtime_error", "timeout"},
    ),
    "full sockets": (
        "import socket\nkept = []\n" + LOOP + "        kept.append(socket.socketpair())\n        kept[-1][0].setblocking(False)\n"
        "        try:\n            while True: kept[-1][0].send(b'x' * 65536)\n        except OSError: pass",
        {"memory_limit", "runtime_error"},
    ),
}


def available() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) << 10


@pytest.mark.parametrize(("code", "reasons"), ATTACKS.values(), ids=list(ATTACKS))
def test_it_is_bounded_and_named(code, reasons):
    done, least, before = threading.Event(), [available()], available()

    def watch():
        while not done.is_set():
            least[0] = min(least[0], available())
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = grade(function([[3], 7], seconds=5, **SMALL), textwrap.dedent(code))
    finally:
        done.set()
        watcher.join()
    assert found.status == "incorrect" and found.reason in reasons, found
    assert before - least[0] < MOST


ORDINARY = {
    "temporary files": "import os, tempfile\ndef f(x):\n    with tempfile.NamedTemporaryFile(dir='.') as one:\n        one.write(b'x' * 1000)\n    os.symlink('a', 'b')\n    return x + 4",
    "a loop of events": "import asyncio\nasync def later(x):\n    await asyncio.sleep(0)\n    return x + 4\ndef f(x): return asyncio.run(later(x))",
    "threads": "from concurrent.futures import ThreadPoolExecutor\ndef f(x):\n    with ThreadPoolExecutor(4) as pool:\n        return sum(pool.map(int, [x, 4]))",
    "a process and a pipe": "import os\ndef f(x):\n    a, b = os.pipe()\n    if os.fork() == 0:\n        os.write(b, b'4')\n        os._exit(0)\n    os.wait()\n    return x + int(os.read(a, 9))",
}


@pytest.mark.parametrize("code", ORDINARY.values(), ids=list(ORDINARY))
def test_ordinary_programs_go_on(code):
    assert grade(function([[3], 7], seconds=5, **SMALL), code).status == "correct"
