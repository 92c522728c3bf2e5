"""The run folder of a locked plan: made once, and refused if it is another plan's."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ablation.errors import IntegrityError, UsageError
from ablation.files import write_bytes
from ablation.memory import free_bytes
from ablation.plan.cost import base_bytes
from ablation.plan.load import field_path
from ablation.plan.locate import locate, missing_resources
from ablation.plan.lock import LockedPlan, verify_lock
from ablation.plan.model_files import moments_problems
from ablation.plan.prices import SERVICES
from ablation.rollouts.folder import RunFolder
from ablation.study.run_folder import refuse_odd_files, run_root

__all__ = ["free_memory", "gate", "open_run", "run_root"]


def gate(plan_path: Path) -> LockedPlan:
    """The plan, if it is locked and untouched, every file it names is there and the same, and its model fits this machine.

    Raises IntegrityError for what changed, and UsageError naming all that is missing; nothing runs otherwise.
    """
    locked = verify_lock(plan_path, resources=True)
    lacking = missing_resources(locked) + _missing_moments(locked) + _missing_memory(locked)
    if lacking:
        raise UsageError("\n".join(f"{locked.path}: {line}" for line in lacking), hint="Nothing was started.")
    return locked


def _missing_moments(locked: LockedPlan) -> list[str]:
    """What is wrong with the optimizer's state that an arm starts with: found now, not on the day when its turn comes."""
    adapter = locate(locked.plan.model.start_adapter, locked.path)
    if not adapter.is_dir():
        return []  # `missing_resources` has said so
    return [f"{field_path(path)}: {text}" for path, text in moments_problems(locked.plan, adapter)]


def _missing_memory(locked: LockedPlan) -> list[str]:
    """A line if the base weights alone are more than the memory that is free, on the accelerator or else on this machine."""
    if locked.plan.policy.backend in SERVICES:
        return []
    needed, free = base_bytes(locked.plan), free_memory()
    if free is None or needed <= free[1]:
        return []
    return [f"model.base: its weights need {needed / 1e9:.1f} GB of memory; {free[0]} has {free[1] / 1e9:.1f} GB free"]


def free_memory(*, accelerator: bool = True) -> tuple[str, int] | None:
    """(what, free bytes) of the device that the local policy would use; None where the system does not say.

    Without `accelerator`: of the machine, or of what this process's control group leaves of it.
    """
    if accelerator and find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name(), torch.cuda.mem_get_info()[0]
    free = free_bytes()
    return None if free is None else ("this machine", free)


def open_run(root: Path, locked: LockedPlan) -> RunFolder:
    """Make the run folder of `locked`, or check that `root` is its own. The caller holds the folder's lock."""
    run = RunFolder(root)
    copies = {
        run.problems: locate(locked.plan.problems.training, locked.path).read_bytes(),
        run.lock: locked.lock.path.read_bytes(),
        run.plan: locked.data,  # last: a folder with it has the others
    }
    if not run.plan.exists() and run.journal.exists():
        raise IntegrityError(
            f"{root}: has a journal but no plan: it is not a whole run folder", hint="Choose another one with --run."
        )
    for path, content in copies.items():
        if not path.exists():
            write_bytes(path, content)
        elif path.read_bytes() != content:
            raise IntegrityError(
                f"{path}: is not that of the locked plan {locked.path} ({locked.digest[:12]})",
                hint="This is the run folder of another plan, or it was changed: choose another one with --run.",
            )
    refuse_odd_files(root)
    return run
