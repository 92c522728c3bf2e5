"""Whether code can be run here, found out by running some."""

from __future__ import annotations

import json
import marshal
import re
import subprocess
import time

from ablation.errors import UsageError
from ablation.problems.sandbox import bubblewrap
from ablation.problems.sandbox.failure import SandboxError
from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.process import Ended, Sandbox

UNSAFE = "none: run without a sandbox, a risk that the user accepted"
_PROBE = """
import os

def probe():
    child = os.fork()
    if child == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.path.exists("/proc/self"), sorted(os.listdir("."))
"""
_HELP = (
    "bubblewrap needs root, or user namespaces that any user may make (`sysctl user.max_user_namespaces`, on Ubuntu "
    "`kernel.apparmor_restrict_unprivileged_userns=0`; in a container, the right to make namespaces)."
)


def sandbox_available() -> tuple[bool, str]:
    """Whether a sandbox works here, and its name and version, or why not. Takes one sandboxed run; a missing bubblewrap, none."""
    if bubblewrap.bwrap_path() is None:
        return False, "bubblewrap (bwrap) is not installed"
    try:
        with Sandbox(b"S", {"source": _PROBE, "entry_point": "probe"}, Limits()) as box:
            box.ready()
            deadline = time.monotonic() + 10
            box.receive(deadline, 1000)
            box.send(b"C", marshal.dumps(((), {})), deadline)
            kind, content = box.receive(deadline, 1000)
    except (SandboxError, Ended) as error:
        return False, str(error)
    if kind != b"V" or json.loads(content) != {"$tuple": [7, False, []]}:
        return False, f"a test program did not run as it should: {content.decode('utf-8', 'replace')}"
    return True, _version()


def how_code_runs() -> str:
    """What keeps the code that is graded here, to be written beside the grades.

    Raises:
        UsageError: nothing does, and the user did not accept that.
    """
    works, why = sandbox_available()
    if works:
        return why
    if bubblewrap.bwrap_path() is None and bubblewrap.risk_accepted():
        return UNSAFE
    raise UsageError(f"code cannot be graded here: {why}", hint=bubblewrap.INSTALL if bubblewrap.bwrap_path() is None else _HELP)


def _version() -> str:
    said = subprocess.run([bubblewrap.bwrap_path() or "bwrap", "--version"], check=False, capture_output=True, text=True).stdout
    return re.sub(r"\s+", " ", said).strip()
