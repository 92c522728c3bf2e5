"""One process of many that torchrun starts, on one machine or several: `torchrun ... -m ablation.policy.sharded run --all`.

The first of them runs `ablation` with these arguments, and all of them hold the model.
"""

from __future__ import annotations

import os
import sys

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from ablation.policy.sharded.joined import start_command
from ablation.policy.sharded.serve import serve


@record
def main() -> int:
    if "WORLD_SIZE" not in os.environ:
        print("ablation.policy.sharded is started by torchrun; on one machine, `ablation run --processes N`", file=sys.stderr)
        return 2
    rank, count, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if 0 < gpus <= local:
        print(f"--nproc-per-node: each process needs a GPU of its own; this machine has {gpus}", file=sys.stderr)
        return 2
    command, link = start_command(sys.argv[1:], count) if rank == 0 else (None, None)
    try:
        serve(rank, count, local, "env://", link)
        return command.wait() if command is not None else 0
    finally:
        if command is not None and command.poll() is None:
            command.terminate()


if __name__ == "__main__":
    sys.exit(main())
