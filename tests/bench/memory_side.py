"""One measurement of memory in a process of its own: `python -m tests.bench.memory_side FOLDER JSON`.

Prints what the process holds once the model is loaded, and the most that it holds during the call, in bytes (resident).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from .made_up import made_up_policy, made_up_rows


def resident(field: str) -> int:
    """`VmRSS` (now) or `VmHWM` (the most since the last reset), in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main(folder: Path, call: str, rollouts: int, length: int, model: dict) -> dict[str, float]:
    policy = made_up_policy(folder, context=length, micro_batch_tokens=rollouts * length, **model)
    rows = made_up_rows(rollouts, length, model["vocabulary"])
    policy.update(made_up_rows(1, 64, model["vocabulary"]), 1e-4)  # what libraries set up once
    policy.reset()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    loaded = resident("VmRSS")
    started = time.process_time()
    policy.score(rows) if call == "score" else policy.update(rows, 1e-4)
    return {"loaded": loaded, "peak": resident("VmHWM"), "seconds": time.process_time() - started}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), **json.loads(sys.argv[2]))))
