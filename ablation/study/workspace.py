"""The run folder of a locked plan: made once, and refused if it is another plan's."""

from __future__ import annotations

from pathlib import Path

from ablation.errors import IntegrityError
from ablation.files import write_bytes
from ablation.plan.locate import check_resources, locate
from ablation.plan.lock import LockedPlan, verify_lock
from ablation.rollouts.folder import RunFolder


def gate(plan_path: Path) -> LockedPlan:
    """The plan, if it is locked and untouched and every file it names is there and the same; nothing runs otherwise."""
    locked = verify_lock(plan_path)
    check_resources(locked, locked.lock)
    return locked


def run_root(locked: LockedPlan, option: Path | None) -> Path:
    """`option`, or `runs/NAME` beside the folder that the plan lies in."""
    if option is not None:
        return option
    folder = locked.path.resolve().parent
    return (folder.parent if folder.name == "plans" else folder) / "runs" / locked.plan.name


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
    return run
