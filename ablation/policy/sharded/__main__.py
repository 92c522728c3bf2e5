"""One process of many that torchrun starts, on one machine or several: `torchrun ... -m ablation.policy.sharded run --all`.

The first of them runs `ablation` with these arguments, and all of them hold the model.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from ablation.policy.sharded.joined import start_command
from ablation.policy.sharded.serve import Lost, Shared, serve

TOLD_SECONDS = 30.0
"""The command, told that the processes end, ends in less."""


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
    command, found = start_command(sys.argv[1:], count) if rank == 0 else (None, None)
    link = None if found is None else Shared(found)

    def lost(why: str) -> None:
        """Said by the command, which goes before it is ended."""
        if command is None or link is None:
            print(f"{why}; all of them end", file=sys.stderr, flush=True)
        else:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                link.send(Lost(why))
                command.wait(TOLD_SECONDS)
        os._exit(1)

    try:
        serve(rank, count, local, "env://", link, lost=lost)
        return command.wait() if command is not None else 0
    finally:
        if command is not None and command.poll() is None:
            command.terminate()


if __name__ == "__main__":
    sys.exit(main())
