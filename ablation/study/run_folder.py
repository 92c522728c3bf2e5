"""Which run folder is read, and which locked plan it is of: shared by all that looks at a run without sampling anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablation.plan.lock import LockedPlan

LONGEST_TEXT, LARGEST = 1 << 28, 1 << 36
"""Bytes of a record (a journal of a million events has fewer), and of any other file."""
_TEXTS = (".json", ".jsonl", ".yaml", ".lock")


def run_root(locked: LockedPlan, option: Path | None) -> Path:
    """`option`, or `runs/NAME` beside the folder that the plan lies in."""
    if option is not None:
        return option
    folder = locked.path.resolve().parent
    return (folder.parent if folder.name == "plans" else folder) / "runs" / locked.plan.name


def chosen_root(locked: LockedPlan, policy: str | None, run: Path | None) -> tuple[Path, str | None]:
    """(the run folder that a look at a run of `locked` is at, the backend that was named, which a printed command repeats).

    `run`, else that of the backend that `--policy` names, else of the one in the environment, else the plan's own. Raises
    `UsageError` if `run` has the rollouts of another backend than `policy`, and what `refuse_odd_files` raises.
    """
    from ablation.study.chosen import choose_backend, folder_of_backend, refuse_other_backend

    allowed = locked.plan.policy.backends
    if run is None:
        backend = choose_backend(allowed, locked.path, policy)
        root = folder_of_backend(run_root(locked, None), allowed, backend)
    else:
        root, backend = run, policy
    refuse_odd_files(root)
    if run is not None and policy is not None:
        refuse_other_backend(allowed, run, str(choose_backend(allowed, locked.path, policy)))
    return root, backend


def find_run(plan: Path | None, run: Path | None, policy: str | None = None) -> tuple[LockedPlan, Path, str | None]:
    """(the locked plan, its run folder, options for a printed `ablation run` that goes on with it).

    With `run` alone the folder's own copy of the plan counts, and options are None: whose folder it is and which plan made it
    cannot be known. Raises `IntegrityError` if folder and plan do not belong together; for `policy` see `chosen_root`.
    """
    from ablation.errors import IntegrityError
    from ablation.plan.choose import choose_plan, named_options
    from ablation.plan.lock import verify_lock

    if plan is None and run is not None:
        locked = own_plan(run)
        chosen_root(locked, policy, run)
        return locked, run, None
    locked = verify_lock(choose_plan(plan))
    root, backend = chosen_root(locked, policy, run)
    options = named_options(plan, run, backend)  # a plan that was not named is the only locked one, also for `ablation run`
    if root.exists():
        own = own_plan(root)
        if own.digest != locked.digest or own.bytes_sha256 != locked.bytes_sha256:
            raise IntegrityError(
                f"{root}: is the run folder of another plan ({own.digest[:12]}, not {locked.digest[:12]} of {locked.path})",
                hint="Name the run folder of this plan with --run, or leave --plan out to judge the folder by its own copy.",
            )
    return locked, root, options


def refuse_odd_files(root: Path) -> None:
    """Raise `IntegrityError` for what a run folder never has.

    A pipe, socket or device could be read for ever; behind a link that leads out of the folder, files would be written elsewhere;
    a record of many gigabytes (one with a hole takes no disk) would fill the memory, and another file would be hashed for hours.
    """
    from ablation.errors import IntegrityError
    from ablation.rollouts.folder import RunFolder

    if not RunFolder(root).plan.exists():
        return  # no run folder: it may be a whole disk
    whole = os.path.realpath(root)
    for path in root.rglob("*"):
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(whole):
            raise IntegrityError(
                f"{path}: is a link to {os.path.realpath(path)}, outside of the run folder",
                hint="Put its files here. A run may lie on another disk as a whole: --run FOLDER.",
            )
        most = LONGEST_TEXT if path.suffix in _TEXTS else LARGEST
        if path.is_file() and path.stat().st_size > most:
            raise IntegrityError(f"{path}: has {path.stat().st_size:,} bytes; such a file of a run has {most:,} at most")
        if path.exists() and not path.is_file() and not path.is_dir():
            raise IntegrityError(f"{path}: is no file (a pipe, a socket or a device), and a run folder has none of them")


def own_plan(root: Path) -> LockedPlan:
    """The copy of the plan that the run began with, proved by its copy of the lock. Raises as `refuse_odd_files`, too."""
    from ablation.errors import IntegrityError, UsageError
    from ablation.plan.lock import verify_lock
    from ablation.rollouts.folder import RunFolder

    if not root.is_dir():
        raise UsageError(f"{root}: there is no such run folder")
    refuse_odd_files(root)
    path = RunFolder(root).plan
    if not path.is_file():
        raise IntegrityError(f"{root}: is not a run folder (it has no {path.name})", hint="Run folders are at runs/NAME.")
    if not RunFolder(root).lock.is_file():
        raise IntegrityError(
            f"{RunFolder(root).lock}: the lock that this run began with is gone",
            hint="Put it back from a copy. A new lock on a plan whose rollouts are there would prove nothing.",
        )
    return verify_lock(path)
