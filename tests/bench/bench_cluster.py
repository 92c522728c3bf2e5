"""A study on a Ray cluster of this machine against the same study without one, as a user runs them: wall time, and where it goes.

The study is small, so most of the difference is what every run on a cluster pays once: Ray's start, and each worker's import and model.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from ablation.plan.lock import lock_plan

from ..study.mini import environment, mini_tree, write_plan
from .row import Row


def rows() -> list[Row]:
    if find_spec("ray") is None:
        return [Row("a study on a Ray cluster of this machine", "not measured: pip install -e '.[ray]'", "", False)]
    with tempfile.TemporaryDirectory(prefix="ablation-bench-") as text:
        folder = Path(text)
        lock_plan(write_plan(folder / "serial", mini_tree()))
        shutil.copytree(folder / "serial", folder / "ray")
        serial, ray = run(folder / "serial"), run(folder / "ray", "--on", "ray")
        same = stages(folder / "serial") == stages(folder / "ray")
    ratio = ray["whole"] / serial["whole"]
    joined = f"{ray['joined']:.1f} s; {ray['first'] - ray['joined']:.1f} s"
    work = ray["last"] / serial["last"]
    return [
        Row(
            "a small study on this machine's Ray cluster against a serial run: wall time",
            words(ratio, ray, serial),
            "printed",
            True,
        ),
        Row("... until the cluster is there; from then until a worker has the model", joined, "printed", True),
        Row("... from the first worker's model to the end, against the serial run's", f"{work:.2f}x", "<= 2x", work <= 2),
        Row("... every stage with the same bytes", "yes" if same else "no", "yes", same),
    ]


def words(ratio: float, ray: dict[str, float], serial: dict[str, float]) -> str:
    return f"{ratio:.2f}x ({ray['whole']:.0f}/{serial['whole']:.0f} s)"


def run(folder: Path, *more: str) -> dict[str, float]:
    """Seconds: `whole`; from the start to `joined` and to the `first` model that is loaded; from there to the end: `last`."""
    began, started = time.time(), time.perf_counter()
    command = [sys.executable, "-m", "ablation", "run", "--all", *more]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment() | {"OMP_NUM_THREADS": "1"})
    whole = time.perf_counter() - started
    lines = (folder / "runs" / "mini" / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]

    def at(kind: str) -> float:
        found = next((event for event in events if event["event"] == kind), None)
        return 0.0 if found is None else datetime.fromisoformat(found["time"]).timestamp() - began

    return {"whole": whole, "joined": at("cluster_joined"), "first": at("model_loaded"), "last": whole - at("model_loaded")}


def stages(folder: Path) -> dict[str, bytes]:
    run = folder / "runs" / "mini"
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in sorted(run.rglob("stage.json"))}
