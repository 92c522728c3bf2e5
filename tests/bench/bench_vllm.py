"""Sampling with vLLM at 135M on this CPU: against a bare vLLM script, the change of an adapter, and the start.

Both sides have a process of their own, the same requests, seeds, adapter, logprobs and engine settings, one thread, and take turns;
each counts its best turn, and what it sampled must be the same. The bare script is written twice: as anybody would, and with this
program's LoRA kernel for CPUs in the same process as the engine, which leaves only what this program does beside the engine.

It needs vLLM: `make bench-vllm`, or `python -m tests.bench vllm` where vLLM is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ablation.plan.load import load_plan
from ablation.plan.locate import locate

from .row import Row

PLAN = Path(__file__).parents[2] / "plans" / "smollm2-vllm.yaml"
WHAT = "vLLM, SmolLM2-135M, LoRA, top 20: "
LEAST, SWAP = 0.95, 2.0
TURNS, SWAPS = 2, 5


class Side:
    """`vllm_side` in its own process, one request at a time."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / f"{'-'.join(arguments)}.log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.vllm_side", *arguments],
            cwd=PLAN.parents[1],
            env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
        )
        self.turns: list[dict] = []
        self.ready = self._hear()

    def sample(self) -> None:
        self.turns.append(self.ask("sample"))

    def ask(self, what: str) -> dict:
        print(what, file=self.process.stdin, flush=True)
        return self._hear()

    def rate(self, clock: str) -> float:
        """Tokens a second of the best turn."""
        return max(one["tokens"] / one[clock] for one in self.turns)

    def identical(self, other: Side) -> float:
        return float(np.mean([one == two for one, two in zip(self.turns[-1]["ids"], other.turns[-1]["ids"], strict=True)]))

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def _hear(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RuntimeError(f"a side of the comparison ended:\n{self.log.read_text()[-2000:]}")
        return json.loads(line)


def rows() -> list[Row]:
    missing = None
    if find_spec("vllm") is None:
        missing = "vLLM is not installed here; `make bench-vllm` measures it in an environment of its own"
    elif not all(
        locate(one, PLAN).is_dir() for one in (load_plan(PLAN).plan.model.base, load_plan(PLAN).plan.model.start_adapter)
    ):
        missing = "run `ablation prepare plans/smollm2-vllm.yaml` first"
    if missing is not None:
        return [Row(WHAT + "tokens/s against a bare script", f"not measured: {missing}", f">= {LEAST}x", False)]
    with tempfile.TemporaryDirectory(prefix="ablation-bench-") as folder:
        ours = Side(Path(folder), "ours")
        found = [*_against(Path(folder), ours), *_swap(ours), *_start(ours)]
        ours.end()
    return found


def _against(folder: Path, ours: Side) -> list[Row]:
    found = []
    for what, arguments in (("a bare script", ()), ("one with the same LoRA kernel", ("--our-lora",))):
        bare = Side(folder, "bare", *arguments)
        ours.turns.clear()
        for _ in range(TURNS):
            ours.sample()
            bare.sample()
        bare.end()
        wall, cpu = (ours.rate(clock) / bare.rate(clock) for clock in ("wall", "cpu"))
        measured = f"{wall:.2f}x ({ours.rate('wall'):.0f}/{bare.rate('wall'):.0f}; CPU time {cpu:.2f}x)"
        found.append(Row(WHAT + f"tokens/s against {what}", measured, f">= {LEAST}x", wall >= LEAST))
        found.append(Row("... share of rollouts with the same tokens", f"{ours.identical(bare):.0%}", "printed", True))
    return found


def _swap(ours: Side) -> list[Row]:
    swaps = [ours.ask("swap") for _ in range(SWAPS)]
    best, typical, cpu = min(s["wall"] for s in swaps), float(np.median([s["wall"] for s in swaps])), min(s["cpu"] for s in swaps)
    measured = f"{typical:.2f} s (best {best:.2f}, CPU time {cpu:.2f})"
    return [
        Row(
            "... a new adapter, from the trainer's memory until proven in the engine", measured, f"<= {SWAP:g} s", typical <= SWAP
        )
    ]


def _start(ours: Side) -> list[Row]:
    ready = ours.ready
    measured = f"{ready['start']:.0f} s + {ready['preflight']:.0f} s (CPU time {ready['preflight_cpu']:.0f} s)"
    return [Row("... start of the engine, and preflight", measured, "printed", True)]
