"""A merge of a checkpoint against peft's own, on a random model in bfloat16: processor time, and memory beyond the libraries.

Each in a process of its own, as they would be used: ours reads and writes the base's files in pieces, and counts what rounding took of
each pair; peft's loads the model, adds the adapter to it and saves it. What ours does before and after (digests, the comparison on
rollouts) is not in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .row import Row

MODEL = {"layers": 12, "hidden": 768, "vocabulary": 32_000, "context": 128, "dtype": "bfloat16"}
"""About 0.17 B parameters."""


def side(*arguments: str) -> dict:
    found = subprocess.run(
        [sys.executable, "-m", "tests.bench.merge_side", *arguments],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(found.stdout.splitlines()[-1])


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="ablation-bench-") as folder:
        made = side("make", folder, json.dumps(MODEL))
        ours, peft = (side(who, folder) for who in ("ours", "peft"))
    size = made["bytes"] / 1e9
    time, memory = ours["seconds"] / peft["seconds"], ours["beyond"] / peft["beyond"]
    what = f"merge of {size:.2f} GB against peft's merge_and_unload and save_pretrained: CPU time"
    beyond = f"{memory:.2f}x ({ours['beyond'] / 1e9:.2f}/{peft['beyond'] / 1e9:.2f} GB)"
    return [
        Row(what, f"{time:.2f}x ({ours['seconds']:.1f}/{peft['seconds']:.1f} s)", "<= 4x", time <= 4),
        Row("... peak memory beyond the libraries", beyond, "<= 0.6x", memory <= 0.6),
    ]
