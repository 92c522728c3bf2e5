"""`--processes 2` against one process, on a CPU, on a random model: time of scoring and of an update, and memory of each process.

Both hold the same model, get the same rollouts and take turns; each counts its best turn. Wall time, as processes share the work; on
cores that others use, too, the least of several turns says most. Memory is what a process has beyond a bare one of its kind (Python
with the libraries), at the most: its part of base, adapter and moments, and one micro-batch.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .row import Row

TURNS = 2
MODEL = {"layers": 8, "hidden": 512, "vocabulary": 16_000, "context": 128, "micro_batch_tokens": 192}
ROLLOUTS, LENGTH = 8, 96


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="ablation-bench-") as folder:
        found = subprocess.run(
            [sys.executable, "-m", "tests.bench.bench_processes", folder],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    one, two = json.loads(found.stdout.splitlines()[-1])
    cores = len(os.sched_getaffinity(0))
    what = f"--processes 2 against 1, CPU with {cores} cores, {one['parameters'] / 1e6:.0f}M parameters in float32: "
    made = []
    for call in ("score", "update"):
        measured = f"{two[call] / one[call]:.2f}x ({two[call]:.1f}/{one[call]:.1f} s)"
        made.append(Row(what + f"{call}, wall time", measured, "printed", True))
        what = "... "
    share = two["memory"] / one["memory"]
    measured = f"{share:.2f}x ({two['memory'] / 1e9:.2f}/{one['memory'] / 1e9:.2f} GB)"
    made.append(Row("... peak memory of the larger process, beyond the libraries", measured, "<= 0.9x", share <= 0.9))
    made.append(Row("... largest relative difference of a logprob", f"{two['apart']:.1e}", "<= 1e-4", two["apart"] <= 1e-4))
    return made


def measure(folder: Path) -> list[dict[str, float]]:
    """Of one process, and of two."""
    import time

    import numpy as np

    from ablation.policy.sharded.policy import ShardedPolicy

    from .made_up import made_up_policy, made_up_rows

    local = made_up_policy(folder, **MODEL)
    parameters = sum(weight.numel() for weight in local.model.parameters())
    plan = local.plan
    del local
    gc.collect()
    own = made_up_rows(ROLLOUTS, LENGTH, MODEL["vocabulary"])
    # One process of the same kind, started and measured as each of the two is.
    policies = [ShardedPolicy(count, plan, folder / "base", folder / "adapter", (1,), 0) for count in (1, 2)]
    found: list[dict[str, float]] = [{"parameters": float(parameters), "score": 1e9, "update": 1e9} for _ in policies]
    scores = []
    for turn in range(TURNS):
        for policy, seen in zip(policies, found, strict=True):
            started = time.perf_counter()
            scored = policy.score(own)
            middle = time.perf_counter()
            policy.update(own, 1e-6)
            seen["score"] = min(seen["score"], middle - started)
            seen["update"] = min(seen["update"], time.perf_counter() - middle)
            if turn == 0:
                scores.append(np.concatenate(scored))
    for policy, seen in zip(policies, found, strict=True):
        seen["memory"] = float(max(_peak(pid) for pid in policy.group.pids))
        policy.close()
    found[1]["apart"] = float(np.abs(scores[1] / scores[0] - 1).max())
    bare = _bare()
    for seen in found:
        seen["memory"] -= bare
    return found


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _bare() -> int:
    """Resident memory of a process that has imported what one of a group does."""
    program = "import ablation.policy.sharded.rank; from tests.bench.memory_side import resident; print(resident('VmRSS'))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(done.stdout)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
