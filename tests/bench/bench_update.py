"""One update over 12 cells x 6 rollouts on SmolLM2-135M with LoRA: training against TRL's GRPOTrainer.

Both sides have the same base, start adapter, rollouts, advantages and precision, one thread, and a process of their own. Generation
is no part of it. TRL's trainer runs by its own `train()` with what is its best here: gradient checkpointing off (it is on by default,
and costs time), batches of 4, padded about the 1,024 tokens that a pass of ours may have (2, 3, 6 and 12 were no faster). One step per
batch needs no old logprobs on its side; ours has the sampler's, which are stored.

Ours goes before and after TRL's one update, which takes minutes, and its slower update counts. Time is CPU time of the process, which
with one thread is what a clock would show on a core of one's own. Memory is resident.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ablation.plan.load import load_plan
from ablation.plan.locate import locate

from .row import Row

PLAN = Path(__file__).parents[2] / "plans" / "smollm2.yaml"
WHAT = "update, 12 cells x 6 rollouts, SmolLM2-135M, bfloat16: "
SPEED, MEMORY = ">= 1.5x", "<= 0.6x"


class Side:
    """`update_side` in its own process, an update at a time."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.update_side", name, "--folder", str(folder), *options],
            cwd=PLAN.parents[1],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / f"{name}.log").open("w"),
            text=True,
        )
        self.log = folder / f"{name}.log"
        self.loaded = self._hear()
        self.updates: list[dict] = []

    def update(self) -> None:
        print(file=self.process.stdin, flush=True)
        self.updates.append(self._hear())

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    @property
    def seconds(self) -> float:
        return max(one["seconds"] for one in self.updates)

    @property
    def peak(self) -> int:
        return max(one["peak"] for one in self.updates)

    @property
    def more(self) -> int:
        """Bytes beyond what the loaded model holds."""
        return self.peak - self.loaded["loaded"]

    @property
    def gradient(self) -> np.ndarray:
        return np.load(self.updates[-1]["gradient"])

    def _hear(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RuntimeError(f"a side of the comparison ended:\n{self.log.read_text()[-2000:]}")
        return json.loads(line)


def rows() -> list[Row]:
    model = load_plan(PLAN).plan.model
    if not all(locate(one, PLAN).is_dir() for one in (model.base, model.start_adapter)):
        missing = "not measured: run `ablation prepare plans/smollm2.yaml` first"
        return [
            Row(WHAT + "tokens/s against TRL", missing, SPEED, False),
            Row(WHAT + "peak memory against TRL", missing, MEMORY, False),
        ]
    with tempfile.TemporaryDirectory(prefix="ablation-bench-") as folder:
        return _against_trl(Path(folder)) + _autocast(Path(folder))


def _against_trl(folder: Path) -> list[Row]:
    ours, theirs = Side(folder, "ours"), Side(folder, "trl", "--batch", "4")
    for side in (ours, theirs, ours):
        side.update()
    ours.end()
    theirs.end()
    assert ours.loaded["tokens"] == theirs.loaded["tokens"], "the two sides trained on different rollouts"
    speed, more, peak = theirs.seconds / ours.seconds, ours.more / theirs.more, ours.peak / theirs.peak
    rates = [side.loaded["tokens"] / side.seconds for side in (ours, theirs)]
    return [
        Row(WHAT + "tokens/s against TRL", f"{speed:.2f}x ({rates[0]:.0f}/{rates[1]:.0f})", SPEED, speed >= 1.5),
        Row(
            WHAT + "peak memory against TRL, beyond the loaded model",
            f"{more:.2f}x {_gb(ours.more, theirs.more)}",
            MEMORY,
            more <= 0.6,
        ),
        Row("... peak of the whole process", f"{peak:.2f}x {_gb(ours.peak, theirs.peak)}", MEMORY, peak <= 0.6),
    ]


def _autocast(folder: Path) -> list[Row]:
    """What bfloat16 autocast gains over float32, and what it does to the gradient, on the rollouts of 3 cells."""
    options = ("--gradient", "--cells", "3")
    exact, fast = (
        Side(folder, "ours", "--precision", "float32", *options),
        Side(folder, "ours", "--precision", "autocast", *options),
    )
    for side in (exact, fast, exact, fast):
        side.update()
    exact.end()
    fast.end()
    one, other = exact.gradient, fast.gradient
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    speed = min(one["seconds"] for one in exact.updates) / min(one["seconds"] for one in fast.updates)
    return [
        Row("update of 3 x 6, ours: bfloat16 autocast against float32, tokens/s", f"{speed:.2f}x", "printed", True),
        Row(
            "... its gradient against float32's",
            f"cosine {cosine:.5f}, relative error {np.linalg.norm(other - one) / np.linalg.norm(one):.3f}",
            "printed",
            True,
        ),
    ]


def _gb(ours: int, theirs: int) -> str:
    return f"({ours / 1e9:.2f}/{theirs / 1e9:.2f} GB)"
