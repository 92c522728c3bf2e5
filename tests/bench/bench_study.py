"""The quickstart study, whole: its time, and what is spent outside the policy's own sampling and training."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from ablation.cli.progress import PlainReporter
from ablation.plan.lock import lock_plan
from ablation.study.runner import open_study
from ablation.study.workspace import gate

from .row import Row

PLAN = Path(__file__).parents[2] / "plans" / "quickstart.yaml"


class Stopwatch:
    """Adds up the time inside a policy's methods."""

    def __init__(self, policy) -> None:
        self.seconds, self.tokens = 0.0, 0
        for name in ("sample", "score", "update"):
            setattr(policy, name, self._timed(getattr(policy, name)))

    def _timed(self, method):
        def call(*arguments, **options):
            started, outer = time.perf_counter(), self.seconds
            try:
                return method(*arguments, **options)
            finally:
                self.seconds = outer + time.perf_counter() - started  # a nested call counts once

        return call


def rows() -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="ablation-bench-"))
    try:
        plan = Path(shutil.copy(PLAN, folder / PLAN.name))
        lock_plan(plan)
        started = time.perf_counter()
        with open_study(gate(plan), folder / "run", PlainReporter()) as study:
            watch = Stopwatch(study.models.policy)
            study.run_all()
        total = time.perf_counter() - started
    finally:
        shutil.rmtree(folder)
    return [
        Row("quickstart study, whole, after installation", f"{total:.0f} s", "<= 300 s on 2 cores", total <= 300),
        Row(
            "... against its own sampling, scoring and training calls",
            f"{total / watch.seconds:.3f}x ({watch.seconds:.0f} s)",
            "<= 1.25x",
            total / watch.seconds <= 1.25,
        ),
    ]
