"""Answers that try to pass, to get out, or to stay. None passes, none breaks the grader, and nothing is left running.

The expected values cannot be worked out from the arguments, so an answer that passes has found them.
"""

import textwrap

import pytest

from .needs import check, function, grade, needs_sandbox, stdin

pytestmark = [needs_sandbox, pytest.mark.slow]
FIRST, SECOND = 840_100_729, 913_377_431
CALLS = function([[3], FIRST], [[4], SECOND], seconds=1.5)
PRINTS = stdin(["3\n", f"{FIRST}\n"], ["4\n", f"{SECOND}\n"], seconds=1.5)
CHECK = check(f"def check(candidate):\n    assert candidate(3) == {FIRST}\n    assert candidate(4) == {SECOND}\n", seconds=1.5)

# Code that two or more attacks share. `hunt` looks for a secret in whatever it is given.
HUNT = """
import re
SECRETS = re.compile(rb"8401\\d{5}|9133\\d{5}")
def hunt(data):
    found = SECRETS.findall(data if isinstance(data, bytes) else repr(data).encode("utf-8", "replace"))
    return int(found[0]) if found else None
"""
DRIVER = """
import sys
def driver():
    frame = sys._getframe()
    while frame and "channel" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals
"""
LIBC = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
"""

ATTACKS = {
    # ends before or instead of answering (B01)
    "sys.exit in the function": ("import sys\ndef f(x): sys.exit(0)", {"runtime_error"}),
    "sys.exit at load": ("import sys\ndef f(x): return 1\nsys.exit(0)", {"runtime_error"}),
    "os._exit in the function": ("import os\ndef f(x): os._exit(0)", {"exited"}),
    "os._exit at load": ("import os\nos._exit(0)", {"exited"}),
    "prints pass and exits": ("import os\ndef f(x):\n    print('PASSED 2/2 OK', flush=True)\n    os._exit(0)", {"exited"}),
    "another program in its place": (
        "import os, sys\ndef f(x): os.execv(sys.executable, [sys.executable, '-c', 'print(0)'])",
        {"exited"},
    ),
    "kills itself": ("import os\ndef f(x): os.kill(os.getpid(), 9)", {"exited"}),
    "crashes": ("import ctypes\ndef f(x): ctypes.string_at(0)", {"exited"}),
    "KeyboardInterrupt": ("def f(x): raise KeyboardInterrupt", {"runtime_error"}),
    "stops itself": ("import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGSTOP)", {"timeout"}),
    # forges an answer
    "replies before it is asked": (
        "import os, struct\nfor n in range(3, 64):\n"
        "    try: os.write(n, struct.pack('!16scI', bytes(16), b'V', 4) + b'true')\n    except OSError: pass\n"
        "def f(x): return 1",
        {"forged_result"},
    ),
    "the nonce of before for every case": (
        DRIVER + "def f(x):\n    d = driver()\n    for _ in range(5): d['channel'].send(d['nonce'], b'V', b'true')\n    return 1",
        {"wrong_answer", "forged_result"},
    ),
    "says that it passed": (
        DRIVER + "def f(x):\n    d = driver()\n    d['channel'].send(d['nonce'], b'P', b'')",
        {"runtime_error"},
    ),
    "a message of 4 GB": (
        DRIVER + "import struct\ndef f(x):\n    d = driver()\n    os = sys.modules['os']\n"
        "    os.write(d['channel']._descriptor, struct.pack('!16scI', d['nonce'], b'V', 2**32 - 1))",
        {"output_limit"},
    ),
    "no JSON": (DRIVER + "def f(x):\n    d = driver()\n    d['channel'].send(d['nonce'], b'V', b'{nope')", {"forged_result"}),
    "JSON with NaN": (DRIVER + "def f(x):\n    d = driver()\n    d['channel'].send(d['nonce'], b'V', b'NaN')", {"forged_result"}),
    "JSON nested without end": (
        DRIVER + "def f(x):\n    d = driver()\n    d['channel'].send(d['nonce'], b'V', b'[' * 500_000 + b']' * 500_000)",
        {"forged_result", "wrong_answer"},
    ),
    "a form that does not exist": (
        DRIVER + "def f(x):\n    d = driver()\n    d['channel'].send(d['nonce'], b'V', b'{\"$eval\": \"1\"}')",
        {"wrong_answer"},
    ),
    "floods the channel": (
        DRIVER + "import os\ndef f(x):\n    d = driver()\n    while True: os.write(d['channel']._descriptor, b'x' * 65536)",
        {"forged_result", "output_limit"},
    ),
    # values that claim to be equal to everything
    "object that equals all": (
        "class All:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return All()",
        {"not_a_plain_value"},
    ),
    "int that equals all": (
        "class All(int):\n    def __eq__(self, other): return True\n    def __index__(self): return 1\ndef f(x): return All(5)",
        {"wrong_answer"},
    ),
    "text that equals all": (
        "class All(str):\n    def __eq__(self, other): return True\n    def __str__(self): return self\ndef f(x): return All('a')",
        {"wrong_answer"},
    ),
    "its own JSON": (
        "import json\njson.dumps = lambda *a, **k: 'true'\ndef f(x): return 1",
        {"wrong_answer"},
    ),
    "its own builtins": (
        "import builtins\nfor name in ('all', 'any', 'isinstance', 'len', 'zip'): setattr(builtins, name, lambda *a, **k: True)\n"
        "def f(x): return 1",
        {"wrong_answer", "runtime_error", "exited", "forged_result", "timeout"},
    ),
    "True for everything": ("def f(x): return True", {"wrong_answer"}),
    "a class in place of a value": ("def f(x): return int", {"not_a_plain_value"}),
    "a value that holds itself": ("def f(x):\n    a = []\n    a.append(a)\n    return a", {"not_a_plain_value"}),
    # looks for the expected values (B03)
    "reads the callers' frames": (
        HUNT + "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        found = hunt(frame.f_locals) or hunt(list(frame.f_globals))\n        if found: return found\n        frame = frame.f_back",
        {"wrong_answer"},
    ),
    "reads all objects": (
        HUNT
        + "import gc\ndef f(x):\n    for o in gc.get_objects():\n        if type(o) in (dict, list, tuple, str, int, bytes):\n"
        "            try: found = hunt(o)\n            except Exception: continue\n            if found: return found",
        {"wrong_answer", "timeout"},
    ),
    "reads its memory": (
        HUNT
        + "def f(x):\n    for line in open('/proc/self/maps'):\n        pass\n    return hunt(open('/proc/self/mem', 'rb').read(10**6))",
        {"runtime_error"},
    ),
    "reads /proc": (
        HUNT + "import glob\ndef f(x):\n    for p in glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/environ'):\n"
        "        found = hunt(open(p, 'rb').read())\n        if found: return found",
        {"wrong_answer"},
    ),
    "reads /proc/self/cmdline": (HUNT + "def f(x): return hunt(open('/proc/self/cmdline', 'rb').read())", {"runtime_error"}),
    "reads arguments and environment": (
        HUNT + "import os, sys\ndef f(x): return hunt([sys.argv, sys.orig_argv, dict(os.environ)])",
        {"wrong_answer"},
    ),
    "lists the working folder": (
        HUNT + "import os\ndef f(x): return hunt(os.listdir('.')) or len(os.listdir('.'))",
        {"wrong_answer"},
    ),
    "reads every file there is": (
        HUNT
        + "import os\ndef f(x):\n    for folder, _, names in os.walk('/'):\n        if folder.startswith('/python'): continue\n"
        "        for name in names:\n            p = os.path.join(folder, name)\n            if p.startswith('/dev'): continue\n"
        "            found = hunt(open(p, 'rb').read())\n            if found: return found",
        {"wrong_answer", "timeout"},
    ),
    "reads every descriptor": (
        HUNT + "import os\ndef f(x):\n    for n in range(64):\n        if n == 0: continue\n        try:\n"
        "            os.set_blocking(n, False)\n            found = hunt(os.read(n, 10**6))\n            if found: return found\n"
        "        except OSError: pass",
        {"wrong_answer", "exited", "runtime_error"},
    ),
    "traces the driver": (
        HUNT
        + "import sys\nSEEN = []\ndef tracer(frame, event, arg):\n    SEEN.append(repr(frame.f_locals)[:2000])\n    return tracer\n"
        "sys.settrace(tracer)\nfr = sys._getframe()\nwhile fr:\n    fr.f_trace = tracer\n    fr = fr.f_back\n"
        "def f(x): return hunt(SEEN)",
        {"wrong_answer"},
    ),
    # processes and threads (B04)
    "fork bomb": (
        "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
        {"timeout", "forged_result", "exited"},
    ),
    "30 forks": (
        "import os, time\ndef f(x):\n    for _ in range(30):\n        if os.fork() == 0: time.sleep(60)\n    return 1",
        {"wrong_answer", "runtime_error"},
    ),
    "daemon": (
        "import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            time.sleep(600)\n"
        "        os._exit(0)\n    return 1",
        {"wrong_answer"},
    ),
    "threads that stay": (
        "import threading, time\ndef f(x):\n    for _ in range(10): threading.Thread(target=time.sleep, args=(600,)).start()\n    return 1",
        {"wrong_answer"},
    ),
    "thread bomb": (
        "import threading, time\ndef f(x):\n    while True: threading.Thread(target=time.sleep, args=(600,)).start()",
        {"runtime_error"},
    ),
    "child that answers later": (
        DRIVER + "import os, time\ndef f(x):\n    d = driver()\n    if os.fork() == 0:\n        time.sleep(0.2)\n"
        "        d['channel'].send(d['nonce'], b'V', b'true')\n        os._exit(0)\n    return 1",
        {"wrong_answer"},
    ),
    # memory and time
    "one large block": ("def f(x): return len(bytearray(10**11))", {"memory_limit"}),
    "more and more": ("def f(x):\n    a = []\n    while True: a.append(bytearray(10**6))", {"memory_limit"}),
    "many processes with a little": (
        "import os, time\ndef f(x):\n    for _ in range(8):\n        if os.fork() == 0:\n            a = bytearray(b'x') * (150 * 2**20)\n"
        "            time.sleep(60)\n    time.sleep(60)",
        {"memory_limit"},
    ),
    "memory that processes share": (
        "import mmap, os, time\ndef f(x):\n    for _ in range(8):\n        if os.fork() == 0:\n"
        "            block = mmap.mmap(-1, 100 << 20)\n            for at in range(0, len(block), 4096): block[at] = 1\n"
        "            time.sleep(60)\n    time.sleep(60)",
        {"memory_limit"},
    ),
    "file in memory": (LIBC + "import os\ndef f(x):\n    return os.memfd_create('x')", {"runtime_error"}),
    "System V memory": (LIBC + "def f(x):\n    return libc.shmget(0, 2**30, 0o1600)", {"wrong_answer"}),
    "large integer": ("def f(x): return 10 ** 10 ** 9", {"timeout", "memory_limit"}),
    "large integer as text": ("def f(x): return str(10 ** 5000)", {"wrong_answer"}),
    "large result": ("def f(x): return 'a' * (2 * 2**20)", {"output_limit"}),
    "recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x + 1) + 1",
        {"memory_limit", "exited", "timeout", "runtime_error"},
    ),
    "deep recursion in C": (
        "def f(x):\n    a = ()\n    for _ in range(10**6): a = (a,)\n    return hash(a)",
        {"exited", "runtime_error", "wrong_answer"},
    ),
    "sleeps": ("import time\ndef f(x): time.sleep(600)", {"timeout"}),
    "loops at load": ("while True: pass", {"timeout"}),
    "loops and ignores everything": (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        {"timeout"},
    ),
    "a regular expression without end": ("import re\ndef f(x): return re.match('(a+)+$', 'a' * 40 + 'b')", {"timeout"}),
    "keys whose hashes are all alike": (
        "def f(x): return {i * (2**61 - 1) for i in range(1, 9000)}",
        {"wrong_answer", "timeout", "output_limit"},
    ),
    "a source that is deeply nested": (
        "def f(x): return " + "(" * 150 + ")" * 150,
        {"wrong_answer", "syntax_error", "memory_limit"},
    ),
    "NUL in the source": ("def f(x): return '\0'", {"syntax_error", "runtime_error"}),
    # files
    "writes outside": ("def f(x): open('/etc/passwd', 'w').write('x')", {"runtime_error"}),
    "writes into the interpreter": (
        "import os\ndef f(x): open(os.__file__ if hasattr(os, '__file__') else '/python/lib/x', 'a').write('x')",
        {"runtime_error"},
    ),
    "writes into the driver": ("def f(x): open('/sandbox/inside.py', 'a').write('x')", {"runtime_error"}),
    "writes into the root": ("import os\ndef f(x): os.mkdir('/new')", {"runtime_error"}),
    "fills the folder": ("def f(x):\n    for n in range(99): open(f'{n}', 'wb').write(b'x' * 2**20)", {"runtime_error"}),
    "opens without end": ("def f(x):\n    a = [open('/dev/null') for _ in range(10**5)]", {"runtime_error"}),
    "a link to the outside": (
        "import os\ndef f(x):\n    os.symlink('/etc/shadow', 'here')\n    return len(open('here').read())",
        {"runtime_error"},
    ),
    "up and out": ("import os\ndef f(x): return len(open('../../../../../etc/hostname').read())", {"runtime_error"}),
    "into the home folder": ("import os\ndef f(x): return len(os.listdir('/root') + os.listdir('/home'))", {"runtime_error"}),
    "into the kernel": ("def f(x): return len(open('/sys/kernel/mm/transparent_hugepage/enabled').read())", {"runtime_error"}),
    # other processes and the kernel
    "signals to everybody": (
        "import os\ndef f(x): os.kill(1, 9); os.kill(os.getppid(), 9); os.kill(-1, 9)",
        {"runtime_error", "exited"},
    ),
    "ptrace": (LIBC + "def f(x): return libc.ptrace(16, 1, 0, 0)", {"wrong_answer"}),
    "another process's memory": (LIBC + "def f(x): return libc.process_vm_readv(1, 0, 0, 0, 0, 0)", {"wrong_answer"}),
    "root again": ("import os\ndef f(x): os.setuid(0)", {"runtime_error"}),
    "a namespace of its own": (LIBC + "def f(x): return libc.unshare(0x10000000)", {"wrong_answer"}),
    "mounts": (LIBC + "def f(x): return libc.mount(b'none', b'/work', b'tmpfs', 0, 0)", {"wrong_answer"}),
    "another root": ("import os\ndef f(x): os.chroot('/work')", {"runtime_error"}),
    "more for itself": (
        "import resource\ndef f(x): resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))",
        {"runtime_error"},
    ),
    # the network
    "connects": ("import socket\ndef f(x): socket.create_connection(('1.1.1.1', 53), 1)", {"runtime_error"}),
    "asks for a name": ("import socket\ndef f(x): return str(socket.getaddrinfo('example.com', 80))", {"runtime_error"}),
    "connects to the host of a virtual machine": (
        "import socket\ndef f(x): socket.socket(40, socket.SOCK_STREAM)",
        {"runtime_error"},
    ),
    "listens": ("import socket\ndef f(x): socket.create_server(('127.0.0.1', 0))", {"runtime_error"}),
    # descriptors
    "closes everything": ("import os\ndef f(x): os.closerange(0, 1000); return 1", {"exited"}),
    "duplicates the channel over everything": (
        DRIVER + "import os\ndef f(x):\n    n = driver()['channel']._descriptor\n    for m in range(3): os.dup2(n, m)\n"
        "    print(True, flush=True)\n    return 1",
        {"forged_result"},
    ),
}

PROGRAMS = {
    "prints nothing": ("pass", {"wrong_answer"}),
    "os._exit": ("import os\nos._exit(0)", {"wrong_answer"}),
    "output without end": ("while True: print('x' * 1000)", {"output_limit"}),
    "output without end or line": ("import sys\nwhile True: sys.stdout.write('x')", {"output_limit", "timeout"}),
    "output to everything": (
        "import os\nfor n in range(3, 64):\n    try: os.write(n, b'OK' * 100)\n    except OSError: pass\nprint(1)",
        {"wrong_answer"},
    ),
    "NUL and half characters": ("import sys\nsys.stdout.buffer.write(b'\\0\\xff\\xfe840100729\\n')", {"wrong_answer"}),
    "background printer": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        print(1, flush=True)\n        time.sleep(0.01)\nprint(2)",
        {"left_processes"},
    ),
    "kills the driver": ("import os\nos.kill(os.getppid(), 9)\nprint(1)", {"exited", "wrong_answer"}),
    "reads its own script and folder": (
        HUNT + "import os\nprint(hunt(open(__file__, 'rb').read().replace(b'8401', b'')), os.listdir('.'))",
        {"wrong_answer"},
    ),
    "waits for more input": ("import sys\nsys.stdin.read()\nimport time\ntime.sleep(60)", {"timeout"}),
    "never reads": ("import time\ntime.sleep(60)", {"timeout"}),
    "raises": ("print(1)\nraise ValueError", {"runtime_error"}),
}

CANDIDATES = {
    "object that equals all": (
        "class All:\n    def __eq__(self, other): return True\ndef f(x): return All()",
        {"not_a_plain_value"},
    ),
    "int that equals all": (
        "class All(int):\n    def __eq__(self, other): return True\ndef f(x): return All(1)",
        {"wrong_answer"},
    ),
    "raises AssertionError": ("def f(x): raise AssertionError", {"runtime_error"}),
    "patches what a check uses": (
        "import builtins, math\nmath.isclose = lambda *a, **k: True\nbuiltins.AssertionError = type('Quiet', (Exception,), {})\ndef f(x): return 1",
        {"wrong_answer"},
    ),
    "says that the check passed": (
        DRIVER + "def f(x):\n    d = driver()\n    d['channel'].send(d['nonce'], b'P', b'')",
        {"runtime_error"},
    ),
    "a value that cannot be read": (
        DRIVER + "def f(x):\n    d = driver()\n    d['channel'].send(d['nonce'], b'V', b'{\"$set\": [[]]}')",
        {"wrong_answer"},
    ),
    "keys whose hashes are all alike": (
        "def f(x): return {i * (2**61 - 1) for i in range(1, 9000)}",
        {"wrong_answer", "timeout", "check_timeout", "output_limit"},
    ),
    "looks for the check": (
        HUNT + "import gc, sys\ndef f(x): return hunt([repr(m) for m in sys.modules.values()])",
        {"wrong_answer"},
    ),
    "exits": ("import os\ndef f(x): os._exit(0)", {"exited"}),
}


def attacks(group):
    return pytest.mark.parametrize(("code", "reasons"), group.values(), ids=list(group))


def fails(tests, code, reasons):
    found = grade(tests, textwrap.dedent(code))
    assert (found.status, found.reason in reasons) == ("incorrect", True), found


def test_there_are_enough():
    assert len(ATTACKS) + len(PROGRAMS) + len(CANDIDATES) > 90


@attacks(ATTACKS)
def test_function(code, reasons, nothing_left):
    fails(CALLS, code, reasons)


@attacks(PROGRAMS)
def test_stdin(code, reasons, nothing_left):
    fails(PRINTS, code, reasons)


@attacks(CANDIDATES)
def test_check(code, reasons, nothing_left):
    fails(CHECK, code, reasons)
