"""`ablation report` on the quickstart study: HTML, Markdown, LaTeX, SVG and PNG, from the rollouts, in one cold process."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from .bench_cold import ROOT, best
from .row import Row

LIMIT = 5.0


def rows() -> list[Row]:
    what, run = "ablation report on the quickstart study, cold", ROOT / "runs" / "quickstart"
    if not (run / "replication" / "C" / "readout" / "stage.json").exists():
        return [Row(what, "not measured: run `make study` first", f"<= {LIMIT:g} s", False)]
    folder = Path(tempfile.mkdtemp(prefix="ablation-bench-report-"))
    try:
        seconds = best(["report", str(run), "--out", str(folder)])
        size = (folder / "report.html").stat().st_size / 1e6
        drawn = len(list((folder / "figures").glob("*.png")))
    finally:
        shutil.rmtree(folder)
    return [
        Row(what, f"{seconds:.2f} s", f"<= {LIMIT:g} s", seconds <= LIMIT),
        Row("its page, with the figures inside", f"{size:.2f} MB, {drawn} figures", "<= 1.5 MB", size <= 1.5 and drawn >= 3),
    ]
