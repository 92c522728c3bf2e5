"""Memory of one long rollout: what the vocabulary adds, and what recomputing layers saves.

One layer, so that what is measured beyond the loaded model is little else than the way from hidden states to logprobs and back
(the layer's activations are in it too). Resident memory, each measurement in a process of its own, one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .row import Row

LENGTH, VOCABULARY = 32_768, 151_936
GIGABYTE = 1e9
TURNS = 2


def measure(call: str, rollouts: int, length: int, **model) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="ablation-bench-") as folder:
        arguments = json.dumps({"call": call, "rollouts": rollouts, "length": length, "model": model})
        found = subprocess.run(
            [sys.executable, "-m", "tests.bench.memory_side", folder, arguments],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
    result = json.loads(found.stdout.splitlines()[-1])
    return result | {"beyond": result["peak"] - result["loaded"]}


def least(*arguments, **model) -> dict[str, float]:
    """Of several measurements: what the allocator keeps of what was let go again differs from one to the next, and only adds."""
    found = [measure(*arguments, **model) for _ in range(TURNS)]
    return {name: min(one[name] for one in found) for name in found[0]}


def rows() -> list[Row]:
    found = []
    full = LENGTH * VOCABULARY * 4 / GIGABYTE
    for call, what in (("score", "forward"), ("update", "forward and backward")):
        more = measure(call, 1, LENGTH, layers=1, hidden=128, vocabulary=VOCABULARY, dtype="bfloat16")["beyond"] / GIGABYTE
        name = f"{what}, one rollout of {LENGTH:,} tokens, vocabulary {VOCABULARY:,}, one layer: peak beyond the model"
        found.append(Row(name, f"{more:.2f} GB (the logits: {full:.1f} GB)", "<= 1 GB", more <= 1))
    model = {"layers": 24, "hidden": 256, "vocabulary": 256}
    kept = least("update", 1, 2048, **model)
    again = least("update", 1, 2048, **model, gradient_checkpointing=True)
    memory, time = again["beyond"] / kept["beyond"], again["seconds"] / kept["seconds"]
    name = "gradient_checkpointing, 24 layers, one rollout of 2,048 tokens: peak beyond the model"
    measured = f"{memory:.2f}x of {kept['beyond'] / GIGABYTE:.2f} GB, in {time:.2f}x the time"
    found.append(Row(name, measured, "<= 0.5x", memory <= 0.5))
    return found
