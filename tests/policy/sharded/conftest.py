"""One run of all cases in one, two and four processes."""

import multiprocessing
from pathlib import Path

import pytest
import torch

from .scenario import CASES, COUNTS, arguments, life, make_folders, work

# Forks of a process that has imported what they all need: a spawned one imports torch, transformers and peft anew.
multiprocessing.get_context("forkserver").set_forkserver_preload(
    ["torch.distributed.fsdp", "ablation.policy.sharded.rank", "ablation.policy.sharded.pulse", "tests.policy.sharded.scenario"]
)


@pytest.fixture(scope="session")
def lives(tmp_path_factory) -> Path:
    """A folder with the models, and in COUNT/CASE what COUNT processes did; 0 is the local policy, in this process."""
    from torch.multiprocessing import start_processes

    from ablation.policy.local import LocalPolicy
    from ablation.policy.optimizer import moments, save_moments

    folder = tmp_path_factory.mktemp("lives")
    make_folders(folder)
    _store_moments(folder, LocalPolicy, moments, save_moments)
    spawned = start_processes(work, (folder,), nprocs=max(COUNTS), join=False, start_method="forkserver")
    for name, case in CASES.items():
        seen = life(LocalPolicy(*arguments(case, folder)), folder / "0" / name, case)
        torch.save(seen, folder / "0" / name / "seen.pt")
    while not spawned.join():
        pass
    return folder


def _store_moments(folder, LocalPolicy, moments, save_moments) -> None:
    """Those of a first step, beside the adapter of the case that starts with moments."""
    from .scenario import RATE, Case, make_rows

    policy = LocalPolicy(*arguments(Case("qwen3"), folder))
    policy.update(make_rows(20), RATE)
    save_moments(moments(policy.optimizer, policy.trainable), folder / "qwen3" / "adapter" / "optimizer.safetensors")


def seen_by(folder: Path, count: int, case: str) -> dict:
    """What `life` recorded there."""
    return torch.load(folder / str(count) / case / "seen.pt", weights_only=False)
