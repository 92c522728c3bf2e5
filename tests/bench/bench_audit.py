"""`ablation audit`, cold: all of the quickstart study, and the record of a language model that is in the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from .row import Row

ROOT = Path(__file__).parents[2]
TRIES = 3
LIMIT = 5.0


def rows() -> list[Row]:
    found = []
    for what, run in (
        ("the quickstart study", ROOT / "runs" / "quickstart"),
        ("the SmolLM2 record", ROOT / "runs/records/smollm2"),
    ):
        if not (run / "replication" / "C" / "readout" / "stage.json").exists():
            found.append(Row(f"ablation audit of {what}, cold", "not measured: run `make study` first", f"<= {LIMIT:g} s", False))
            continue
        seconds, processor = min(_once(run) for _ in range(TRIES))
        shown = f"{seconds:.2f} s ({processor:.2f} s of one processor)"
        found.append(Row(f"ablation audit of {what}, cold", shown, f"<= {LIMIT:g} s", seconds <= LIMIT))
    return found


def _once(run: Path) -> tuple[float, float]:
    """(seconds, seconds of processor time) of one audit, which must find no difference."""
    before, started = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "ablation", "audit", str(run)], check=True, capture_output=True)
    now, seconds = os.times(), time.perf_counter() - started
    return seconds, now.children_user - before.children_user + now.children_system - before.children_system
