"""HumanEval's canonical solutions, each in a fresh sandbox with its check in another, on two cores; and one sandbox alone."""

from __future__ import annotations

import subprocess
import sys
import time

from ablation.problems.graders.code import gold_answer, grade_many
from ablation.problems.human_eval import human_eval_problems
from ablation.problems.sandbox.available import sandbox_available
from ablation.problems.sandbox.limits import Limits
from ablation.problems.sandbox.process import Sandbox

from .row import Row

LIMIT_SECONDS, TRIES = 25.0, 30
WHAT = "HumanEval, 164 canonical solutions in sandboxes, 2 at once"


def milliseconds(run) -> float:
    """The median of several, wall time."""
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - began))
    return sorted(times)[TRIES // 2]


def start_and_end() -> None:
    with Sandbox(b"S", {"source": "def f(): return 1", "entry_point": "f"}, Limits()) as box:
        box.ready()


def bare_python() -> None:
    subprocess.run([sys.executable, "-I", "-S", "-X", "frozen_modules", "-c", "import json"], check=True)


def rows() -> list[Row]:
    works, why = sandbox_available()
    if not works:
        return [Row(WHAT, f"not measured: {why}", f"<= {LIMIT_SECONDS:.0f} s", False)]
    pairs = [(problem, gold_answer(problem)) for problem in human_eval_problems()]
    began = time.perf_counter()
    grades = grade_many(pairs, workers=2)
    seconds = time.perf_counter() - began
    passed = sum(grade.status == "correct" for grade in grades)
    sandbox, bare = milliseconds(start_and_end), milliseconds(bare_python)
    return [
        Row(WHAT, f"{seconds:.1f} s", f"<= {LIMIT_SECONDS:.0f} s", seconds <= LIMIT_SECONDS),
        Row("... that pass", f"{passed} of {len(pairs)}", "164 of 164", passed == len(pairs) == 164),
        Row("one sandbox, from start to nothing left", f"{sandbox:.0f} ms, {sandbox / bare:.1f}x a bare Python", "none", True),
    ]
