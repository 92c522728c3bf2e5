"""`ablation verdict`, cold, over a million rollouts: CPU seconds and peak memory of the process, and how they grow.

CPU seconds, because other work on the machine only adds to the time on the wall. The run folders are kept in the system's
temporary folder, so that only the first bench waits for them (two minutes).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from math import log
from pathlib import Path

from .made_up_run import made_up_run
from .row import Row

ROOT = Path(__file__).parents[2]
TRIES = 3
SECONDS, GIGABYTES, EXPONENT = 10.0, 2.0, 1.1
EACH = (20, 62)
"""Rollouts of each of 1,800 cells in nine stages: 324,000 and 1,004,400 in all."""


def verdict(run: Path) -> tuple[float, float]:
    """(CPU seconds, peak resident memory in GB) of one verdict in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ablation", "verdict", "--run", str(run)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 and b"Verdict: REPLICATED" in said, said.decode()
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e9


def rows() -> list[Row]:
    measured = []
    for each in EACH:
        run = made_up_run(Path(tempfile.gettempdir()), each)
        tries = [verdict(run) for _ in range(TRIES)]
        measured.append((each * 1800 * 9, min(seconds for seconds, _ in tries), max(peak for _, peak in tries)))
    (few, least, _), (rollouts, seconds, peak) = measured
    exponent = log(seconds / least) / log(rollouts / few)
    return [
        Row(
            f"ablation verdict on {rollouts:,} rollouts, cold, CPU",
            f"{seconds:.1f} s ({rollouts / seconds:,.0f} rollouts a second)",
            f"<= {SECONDS:.0f} s",
            seconds <= SECONDS,
        ),
        Row("... peak memory", f"{peak:.2f} GB", f"<= {GIGABYTES:.0f} GB", peak <= GIGABYTES),
        Row(
            f"... growth, {few:,} to {rollouts:,} rollouts",
            f"{least:.1f} to {seconds:.1f} s, n^{exponent:.2f}",
            f"<= n^{EXPONENT}",
            exponent <= EXPONENT,
        ),
    ]
