"""The other side of `problems.workers`: loads a grader's packages once, then forks a child that works under limits.

    python -c "from ablation.problems.worker_process import main; main()" MODULE SECONDS MEMORY

`MODULE.prepare()` imports what is needed; `MODULE.work(item)` turns one JSON value into another. Messages on stdin and stdout
are JSON after four bytes of length. A request is a list of items; each item is answered by one message, in order. When the child
dies, this process says how and forks another from the same prepared state, which costs milliseconds.

Processor time is limited by the kernel: the timer's signal ends the child wherever it is, in Python or not. A busy machine makes
an item wait longer but not fail.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
from importlib import import_module
from typing import Any

OUT_OF_MEMORY = 77
"""Exit code of a child whose item needed more memory than the limit."""


def main() -> None:
    """Serve until stdin ends."""
    module, seconds, memory = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    requests, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):  # what a package reads or prints must not meddle with the messages
        os.dup2(nowhere, standard)
    grader = import_module(module)
    grader.prepare()
    gc.freeze()  # what is loaded stays shared between this process and its children
    os.dup2(nowhere, 2)  # nobody reads the warnings of packages, and a full pipe would block
    send(answers, {"ready": os.getpid()})
    while True:
        child = os.fork()
        if child == 0:
            _serve(grader, requests, answers, seconds, memory)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return
        how = {-signal.SIGPROF: "time", OUT_OF_MEMORY: "memory"}.get(code, "crash")
        send(answers, {"died": how, "code": code})


def _serve(grader: Any, requests: int, answers: int, seconds: float, memory: int) -> None:
    """The child: never returns."""
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while (items := receive(requests)) is not None:
            for item in items:
                signal.setitimer(signal.ITIMER_PROF, seconds)
                found = grader.work(item)
                signal.setitimer(signal.ITIMER_PROF, 0)
                send(answers, {"found": found})
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BaseException:
        os._exit(1)
    os._exit(0)


def send(pipe: int, message: Any) -> None:
    """Write one message whole."""
    data = json.dumps(message).encode()
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(pipe, data) :]


def receive(pipe: int) -> Any:
    """Read one message; None when the other side is gone."""
    head = _read(pipe, 4)
    body = head and _read(pipe, int.from_bytes(head, "big"))
    return json.loads(body) if body else None


def _read(pipe: int, size: int) -> bytes | None:
    parts = b""
    while len(parts) < size:
        part = os.read(pipe, min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return parts
