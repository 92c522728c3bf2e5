"""Cold starts: the best of several, since a shared machine only ever adds time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from .row import Row

ROOT = Path(__file__).parents[2]
TRIES = 5


def best(arguments: list[str]) -> float:
    times = []
    for _ in range(TRIES):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "ablation", *arguments], cwd=ROOT, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


def rows() -> list[Row]:
    seconds = best(["--help"])
    found = [Row("ablation --help, cold", f"{seconds:.2f} s", "<= 0.25 s", seconds <= 0.25)]
    run = ROOT / "runs" / "quickstart"
    if (run / "replication" / "C" / "readout" / "stage.json").exists():
        seconds = best(["verdict", "--run", str(run)])
        found.append(Row("ablation verdict on the quickstart study, cold", f"{seconds:.2f} s", "<= 1.5 s", seconds <= 1.5))
    else:
        found.append(Row("ablation verdict, cold", "not measured: run `make study` first", "<= 1.5 s", False))
    return found
