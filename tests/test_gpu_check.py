import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_without_a_gpu_it_runs_in_miniature_and_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu_check"],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no GPU here" in done.stderr and "in miniature" in done.stdout
    assert "the same to the last bit" in done.stdout and "NOT" not in done.stdout
