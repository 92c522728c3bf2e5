import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ablation.problems.sandbox import bubblewrap
from ablation.problems.sandbox.failure import NoSandbox

from .needs import needs_sandbox

ABLATION = Path(bubblewrap.__file__).parents[2]
AS_NOBODY = """
import marshal, os, sys, time
from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.process import Sandbox
SOURCE = '''
import os, time
def f():
    for made in range(100):
        try:
            if os.fork() == 0: time.sleep(60)
        except OSError:
            return made, os.getuid(), os.listdir("/work"), os.path.exists("/proc/self")
'''
with Sandbox(b"S", {"source": SOURCE, "entry_point": "f"}, Limits(processes=10)) as box:
    box.ready()
    box.receive(time.monotonic() + 10, 1000)
    box.send(b"C", marshal.dumps(((), {})), time.monotonic() + 10)
    print(os.getuid(), box.receive(time.monotonic() + 10, 1000)[1].decode())
"""


def test_own_user_differs_each_time_and_is_in_this_user_namespace():
    users = [bubblewrap.own_user() for _ in range(64)]
    assert len(set(users)) == 64 or set(users) == {bubblewrap.NOBODY}


def test_without_bubblewrap_there_is_no_sandbox_and_the_message_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(bubblewrap.RISK_VARIABLE, raising=False)
    with pytest.raises(NoSandbox, match="bwrap") as error:
        bubblewrap.choose()
    assert "apt-get install bubblewrap" in error.value.hint


@pytest.mark.parametrize("words", ["1", "yes", "true", "i accept the risk", "I accept the risk."])
def test_the_risk_is_taken_in_so_many_words_or_not(monkeypatch, tmp_path, words):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(bubblewrap.RISK_VARIABLE, words)
    with pytest.raises(NoSandbox):
        bubblewrap.choose()
    monkeypatch.setenv(bubblewrap.RISK_VARIABLE, "I accept the risk")
    assert bubblewrap.choose() is None


@needs_sandbox
def test_the_risk_is_not_taken_where_there_is_a_sandbox(monkeypatch):
    monkeypatch.setenv(bubblewrap.RISK_VARIABLE, "I accept the risk")
    assert bubblewrap.choose() == shutil.which("bwrap")


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="the tests run as another user already")
def test_it_also_works_for_a_user_without_rights():
    """With a Python that this user can read, which the one that runs the tests may not be."""
    python = next((path for path in (sys.executable, "/usr/bin/python3") if _usable_by_nobody(path)), None)
    if python is None:
        pytest.skip("no Python 3.11 here that any user can read")
    if not _may_make_namespaces():
        pytest.skip("users may not make namespaces here")
    folder = Path(tempfile.mkdtemp())
    try:
        shutil.copytree(ABLATION / "problems" / "sandbox", folder / "ablation" / "problems" / "sandbox")
        for name in ("__init__.py", "errors.py", "problems/__init__.py", "problems/plain.py"):
            shutil.copy(ABLATION / name, folder / "ablation" / name)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        ran = subprocess.run(
            [python, "-B", "-c", AS_NOBODY],
            cwd=folder,
            user=65534,
            group=65534,
            extra_groups=[],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        shutil.rmtree(folder)
    assert ran.stderr == ""
    assert ran.stdout == '65534 {"$tuple":[8,65534,[],false]}\n' or ran.stdout == '65534 {"$tuple":[9,65534,[],false]}\n'


def _usable_by_nobody(python: str) -> bool:
    try:
        code = "import sys; sys.exit(sys.version_info < (3, 11))"
        return (
            subprocess.run(
                [python, "-c", code], user=65534, group=65534, extra_groups=[], check=False, capture_output=True
            ).returncode
            == 0
        )
    except OSError:
        return False


def _may_make_namespaces() -> bool:
    command = ["bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"]
    return subprocess.run(command, user=65534, group=65534, extra_groups=[], check=False, capture_output=True).returncode == 0
