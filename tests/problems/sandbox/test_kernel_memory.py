"""Answers that make the kernel hold memory for them, measured while they run; and ordinary ones that use a little of the same."""

import contextlib
import errno
import textwrap
import threading
import time
from pathlib import Path

import pytest

from .needs import function, grade, needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.slow]
MOST_MB = 300  # ten seconds of any of these took 700 to 1900
NAMES = "import os\ndef f(x):\n    n = 0\n    while True:\n        n += 1\n        {}\n"
LONG = "'n' * 200 + str(n)"

ATTACKS = {
    "extended attributes": NAMES.format(
        "open(str(n), 'w').close()\n        for j in range(500): os.setxattr(str(n), f'user.{j}', b'x' * 3000)"
    ),
    "links": NAMES.format(f"os.symlink('x' * 120, {LONG})"),
    "hard links": "open('a', 'w').close()\n" + NAMES.format(f"os.link('a', {LONG})"),
    "pipes with a name": NAMES.format(f"os.mkfifo({LONG})"),
    "nodes": NAMES.format(f"os.mknod({LONG}, 0o140600)"),
    "folders": NAMES.format(f"os.mkdir({LONG})"),
    "empty files": NAMES.format(f"open({LONG}, 'w').close()"),
    "shared memory that is shown no more": """
        import mmap
        def f(x):
            for _ in range(8):
                if os.fork() == 0: break
            block = mmap.mmap(-1, 40 << 20)
            for at in range(0, len(block), 1 << 20):
                block[at : at + (1 << 20)] = b"x" * (1 << 20)
                block.madvise(mmap.MADV_DONTNEED)
            time.sleep(60)
        """,
    "sockets": """
        import socket
        def f(x):
            for _ in range(6):
                if os.fork() == 0: break
            keep = []
            while len(keep) < 50:  # they hold 200 KB each
                pair = socket.socketpair()
                keep += pair
                for one in pair:
                    one.setblocking(False)
                    try:
                        while True: one.send(bytes(4096))
                    except BlockingIOError: pass
            time.sleep(60)
        """,
    "locks": """
        import fcntl
        def f(x):
            os.fork()
            files = [open(f"{os.getpid()}-{n}", "w") for n in range(50)]
            at = 1 << 40
            while True:
                at -= 2
                for file in files: fcntl.lockf(file, fcntl.LOCK_EX, 1, at)
        """,
    "locks of no process": """
        import fcntl, struct
        def f(x):
            file = open("a", "w")
            for at in range(0, 1 << 40, 2): fcntl.fcntl(file, 37, struct.pack("hhqqi4x", 1, 0, at, 1, 0))
        """,
    "larger queues of sockets": """
        import socket
        def f(x):
            keep = [one for _ in range(28) for one in socket.socketpair()]
            for one in keep:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
                one.setblocking(False)
                try:
                    while True: one.send(bytes(65536))
                except BlockingIOError: pass
            time.sleep(60)
        """,
    "queues of sockets that are closed": """
        import socket
        def f(x):
            keep = []
            for n in range(55):
                keep.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                keep[-1].bind(b"\\0%d" % n)
                for _ in range(11):
                    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                        try: sender.sendto(bytes(200_000), b"\\0%d" % n)
                        except BlockingIOError: pass
            time.sleep(60)
        """,
    "pages of a file that was cut, kept by a socket": """
        import socket
        def f(x):
            keep = []
            with open("a", "w+b", 0) as file:
                while len(keep) < 50:
                    keep += socket.socketpair()
                    keep[-1].setblocking(False)
                    out, into = os.pipe()
                    try:
                        while True:
                            file.truncate(0)
                            os.pwrite(file.fileno(), bytes(1 << 16), 0)
                            for n in range(15): os.splice(file.fileno(), into, 1, offset_src=n * 4096)
                            os.splice(out, keep[-1].fileno(), 15, flags=2)
                    except BlockingIOError: os.close(out), os.close(into)
            time.sleep(60)
        """,
    "pipes that had a name": """
        def f(x):
            for _ in range(24):
                if os.fork() == 0: break
            name = str(os.getpid())
            for _ in range(50):
                os.mkfifo(name)
                pipe = os.open(name, os.O_RDWR | os.O_NONBLOCK)
                os.unlink(name)
                try:
                    while True: os.write(pipe, bytes(4096))
                except BlockingIOError: pass
            time.sleep(60)
        """,
    "mappings that many forks inherit": """
        import ctypes
        libc = ctypes.CDLL(None)
        def f(x):
            a, b, n = 1 << 44, 8192, 9000
            for i in range(n): libc.mmap(ctypes.c_void_p(a + i * b), ctypes.c_size_t(4096), 3, 0x100022, -1, ctypes.c_long(0))
            for _ in range(28):
                for i in range(n):
                    ctypes.c_char.from_address(a + i * b).value = b"x"
                    if i % 500 == 0: libc.madvise(ctypes.c_void_p(a), ctypes.c_size_t(i * b), 4)
                libc.madvise(ctypes.c_void_p(a), ctypes.c_size_t(n * b), 4)
                if os.fork(): break
            time.sleep(60)
        """,
    "threads of a process whose first has gone": """
        import ctypes, threading
        def eat():
            held = []
            try:
                while True: held.append(bytearray(1 << 20))
            except MemoryError: time.sleep(60)
        def f(x):
            for _ in range(6):
                if os.fork() == 0:
                    threading.Thread(target=eat).start()
                    ctypes.CDLL(None).syscall(93 if os.uname().machine == 'aarch64' else 60, 0)
            time.sleep(60)
        """,
    "while it always says something": """
        import struct, sys
        def f(x):
            frame = sys._getframe()
            while "channel" not in frame.f_locals: frame = frame.f_back
            channel, nonce = frame.f_locals["channel"]._descriptor, frame.f_locals["nonce"]
            os.write(channel, struct.pack("!16scI", nonce, b"V", 900_000))
            if os.fork() == 0:
                while True:
                    time.sleep(0.003)
                    os.write(channel, b" ")
            for _ in range(6):
                if os.fork() == 0: block = bytearray(b"x") * (30 << 20)
            time.sleep(60)
        """,
}

ORDINARY = {
    "temporary files": "import tempfile\ndef f(x):\n    with tempfile.TemporaryDirectory() as d:\n"
    "        open(d + '/a', 'w').write('1')\n        os.symlink(d + '/a', d + '/b')\n        return int(open(d + '/b').read())",
    "an event loop": "import asyncio\nasync def g(): await asyncio.gather(*[asyncio.sleep(0.01) for _ in range(50)])\n"
    "def f(x):\n    asyncio.run(g())\n    return 1",
    "threads": "import threading\ndef f(x):\n    a = []\n    t = [threading.Thread(target=a.append, args=(1,)) for _ in range(50)]\n"
    "    for one in t: one.start()\n    for one in t: one.join()\n    return len(a) // 50",
    "another process": "import multiprocessing\ndef w(c): c.send(1)\ndef f(x):\n    c = multiprocessing.get_context('fork')\n"
    "    a, b = c.Pipe()\n    p = c.Process(target=w, args=(b,))\n    p.start()\n    r = a.recv()\n    p.join()\n    return r",
    "a program": "import subprocess, sys\ndef f(x):\n    return int(subprocess.check_output([sys.executable, '-I', '-S', '-c', 'print(1)']))",
    "a database": "import sqlite3\ndef f(x):\n    c = sqlite3.connect('a')\n    c.execute('create table t (a)')\n"
    "    c.execute('insert into t values (1)')\n    c.commit()\n    return c.execute('select a from t').fetchone()[0]",
    "copies": "import shutil\ndef f(x):\n    open('a', 'w').write('1')\n    shutil.copy2('a', 'b')\n    return int(open('b').read())",
    "a mapped file": "import mmap\ndef f(x):\n    open('a', 'wb').write(b'1' * 4096)\n    with open('a', 'r+b') as h:\n"
    "        return int(mmap.mmap(h.fileno(), 0)[:1])",
    "many files": "def f(x):\n    for n in range(2000): os.mkdir(str(n))\n    return len(os.listdir()) // 2000",
    "locks": "import fcntl\ndef f(x):\n    with open('a', 'w') as h:\n        fcntl.lockf(h, fcntl.LOCK_EX)\n"
    "        fcntl.flock(h, fcntl.LOCK_EX)\n    return 1",
    "waiting for sockets": "import selectors, socket\ndef f(x):\n    a, b = socket.socketpair()\n    s = selectors.DefaultSelector()\n"
    "    s.register(a, 1)\n    b.send(b'x')\n    return len(s.select(1))",
}


def kernel_mb() -> float:
    """What the kernel of this machine holds that is no file and no program's own memory."""
    found = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(found[name].split()[0]) for name in ("Shmem", "SUnreclaim", "KernelStack", "PageTables")) / 1024


@contextlib.contextmanager
def watched():
    """A list with the most that was held above what was held at first."""
    first, most, ended = kernel_mb(), [0.0], threading.Event()

    def look():
        while not ended.wait(0.02):
            most[0] = max(most[0], kernel_mb() - first)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("code", ATTACKS.values(), ids=list(ATTACKS))
def test_what_the_kernel_holds_counts_as_memory(code, nothing_left):
    began = time.monotonic()
    with watched() as most:
        found = grade(function([[3], 1], seconds=10, memory_mb=64, disk_mb=1), "import os, time\n" + textwrap.dedent(code))
    assert (found.status, found.reason) == ("incorrect", "memory_limit")
    assert most[0] < MOST_MB and time.monotonic() - began < 30


def test_huge_pages_are_off_and_stay_off():
    code = """
        import ctypes
        prctl = ctypes.CDLL(None).prctl
        def f(x): return [prctl(42, 0, 0, 0, 0), prctl(41, 0, 0, 0, 0), prctl(41, 1, 2, 0, 0), prctl(42, 0, 0, 0, 0)]
        """
    assert grade(function([[3], [1, -1, -1, 1]]), code).status == "correct"  # a part of one that stays would be seen alone


def test_no_locks_of_a_process_that_has_ended():
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def f(x):
            shared_files = libc.syscall(220 if os.uname().machine == "aarch64" else 56, 0x400 | 17, 0, 0, 0, 0)
            if shared_files == 0: os._exit(0)
            return [shared_files, ctypes.get_errno()]
        """
    assert grade(function([[3], [-1, errno.EPERM]]), code).status == "correct"


@pytest.mark.parametrize("code", ORDINARY.values(), ids=list(ORDINARY))
def test_ordinary_programs_go_on(code):
    assert grade(function([[3], 1], memory_mb=256, disk_mb=1, processes=64), "import os\n" + code).status == "correct"
