import json
import os
import signal
import subprocess
import sys

import pytest

from ablation.errors import GateError
from ablation.study.runlock import exclusive, runner_at_work

HOLDER = """
import sys, time
from pathlib import Path
from ablation.study.runlock import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_runner_is_refused_with_the_holders_name_and_free_after_kill(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(GateError, match=f"process {holder.pid} on ") as refused, exclusive(tmp_path):
            pass
        assert refused.value.exit_code == 4
        assert f"process {holder.pid}" in runner_at_work(tmp_path)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with exclusive(tmp_path):
        assert json.loads((tmp_path / ".runner").read_text())["pid"] == os.getpid()
    assert runner_at_work(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"garbage", b'{"host": "elsewhere", "pid": 1}'])
def test_what_the_file_says_blocks_nobody(tmp_path, content):
    (tmp_path / ".runner").write_bytes(content)
    with exclusive(tmp_path):
        pass


def test_no_folder_no_runner(tmp_path):
    assert runner_at_work(tmp_path / "none") is None
