"""Real processes of a gloo group: what a part of them is refused ends them all, and what all are refused ends none."""

import os
import sys
import time
from pathlib import Path

import pytest

from ablation.policy.sharded.agree import agree

pytestmark = pytest.mark.slow


def life(rank: int, folder: Path, refused: tuple[bool, bool], stuck: bool) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    seen = folder / f"seen-{rank}"

    def give_up(error: Exception) -> None:
        seen.write_text(f"gave up: {error}")
        os._exit(0)

    if stuck and rank == 0:  # in the middle of a computation with the other
        time.sleep(60)
    try:
        agree(OSError("no space") if refused[rank] else None, dist.group.WORLD, give_up, seconds=1.0)
        seen.write_text("goes on")
    except RuntimeError as error:
        seen.write_text(str(error))
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)


def run(folder: Path, refused: tuple[bool, bool], stuck: bool = False) -> list[str]:
    from torch.multiprocessing import start_processes

    context = start_processes(life, (folder, refused, stuck), nprocs=2, join=False, start_method="forkserver")
    until = time.monotonic() + 120
    while not all((folder / f"seen-{rank}").is_file() for rank in range(1 if stuck else 0, 2)) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.2)  # the text is written whole
    found = [(folder / f"seen-{rank}").read_text() if (folder / f"seen-{rank}").is_file() else "" for rank in range(2)]
    for process in context.processes:
        process.kill()
    return found


def test_what_none_or_all_are_refused_is_an_answer(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert run(tmp_path / "a", (False, False)) == ["goes on", "goes on"]
    assert run(tmp_path / "b", (True, True)) == ["goes on", "goes on"]


def test_what_one_is_refused_ends_both(tmp_path):
    assert run(tmp_path, (False, True)) == ["process 1 was refused and others were not: OSError: no space"] * 2


def test_one_that_is_refused_while_the_other_waits_for_it_gives_up(tmp_path):
    found = run(tmp_path, (False, True), stuck=True)
    assert found == ["", "gave up: process 1 was refused and others were not: OSError: no space"]
