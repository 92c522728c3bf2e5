"""What is merged: a checkpoint of a run or the starting adapter, and the base, each proved to be what was locked or saved."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import IncompleteError, IntegrityError, UsageError
from ablation.files import MARKER, folder_is_complete, sha256_file, sha256_path
from ablation.plan.load import field_path
from ablation.plan.locate import locate, missing_resources
from ablation.plan.lock import LockedPlan
from ablation.plan.model import START
from ablation.plan.model_files import ADAPTER_FILE, adapter_problems
from ablation.plan.phase2 import evaluation_family
from ablation.plan.section import did_you_mean
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import JournalState, check_journal
from ablation.rollouts.seen import check_lock_copy

FIELDS = {"model.base": "base", "model.start_adapter": "start_adapter"}


@dataclass(frozen=True)
class Source:
    """One checkpoint; every digest here was computed now, and is the one that lock or journal names."""

    locked: LockedPlan
    run: RunFolder
    family: str
    arm: str
    updates: int
    base: Path
    adapter: Path
    start_adapter: Path
    base_sha256: str
    adapter_sha256: str
    """Of the adapter's weights as a file."""
    start_adapter_sha256: str
    checkpoint_sha256: str | None
    """Of the checkpoint's marker, which has the digests of all its files, as the journal has it; None for the start."""
    journal: JournalState | None
    """None where nothing has run."""
    base_locked: bool
    """False: the lock has no digest of the base, only its revision on a hub."""

    @property
    def name(self) -> str:
        return f"{self.arm}@{self.updates}"

    def record(self) -> dict[str, Any]:
        """Digests and places, without a path of this machine."""
        plan, journal = self.locked.plan, self.journal
        return {
            "plan": {"name": plan.name, "digest": self.locked.digest, "lock_sha256": sha256_file(self.locked.lock.path)},
            "family": self.family,
            "arm": self.arm,
            "updates": self.updates,
            "base": {"at": plan.model.base.at, "sha256": self.base_sha256, "locked": self.base_locked},
            "adapter": {"sha256": self.adapter_sha256, "checkpoint_sha256": self.checkpoint_sha256},
            "start_adapter": {"at": plan.model.start_adapter.at, "sha256": self.start_adapter_sha256},
            "journal": None if journal is None or not journal.events else journal.as_json(),
        }


def find_source(locked: LockedPlan, root: Path, text: str, family: str | None = None) -> Source:
    """The checkpoint that `text` (ARM@UPDATES, or start@0) names, of `family` (left out: the one that is evaluated).

    Raises:
        UsageError: no such arm or family, or base or adapter are not at hand or not as the plan describes them.
        IncompleteError: the checkpoint is not there yet.
        IntegrityError: base, adapter or checkpoint are not those of lock and journal, or the journal was touched.
    """
    plan = locked.plan
    match = re.fullmatch(r"([^@]+)@([0-9]{1,6})", text)
    if match is None:
        example = f"{next(reversed(plan.arms))}@{plan.training.updates}"
        raise UsageError(f"found `{text}`; it is ARM@UPDATES, for instance {example}, or {START}@0")
    arm, updates = match[1], int(match[2])
    if arm != START and arm not in plan.arms:
        raise UsageError(f"{locked.path} has no arm `{arm}`; its arms are {', '.join(plan.arms)}{did_you_mean(arm, plan.arms)}")
    if (arm == START) != (updates == 0):
        raise UsageError(f"found `{text}`; the starting adapter is {START}@0, and an arm has at least one update")
    if family is not None and family not in plan.families:
        known = ", ".join(plan.families)
        raise UsageError(f"--family: {locked.path} has no family `{family}`; it has {known}{did_you_mean(family, plan.families)}")
    family = family or evaluation_family(plan)
    run, journal = RunFolder(root), None
    if root.is_dir():
        check_lock_copy(root, locked)
        journal = check_journal(root, locked.digest)
    elif arm != START:
        raise IncompleteError(f"{root}: there is no such run, so there is no checkpoint to merge")
    base, start = locate(plan.model.base, locked.path), locate(plan.model.start_adapter, locked.path)
    digests = {name: locked_digest(locked, name) for name in FIELDS}
    adapter, marker = start, None
    if arm != START:
        adapter = run.checkpoint(family, arm, updates)
        marker = _checkpoint_digest(run, family, arm, updates)
    problems = adapter_problems(plan, adapter)
    if problems:
        raise UsageError("\n".join(f"{field_path(path)}: {said}" for path, said in problems))
    return Source(
        locked=locked,
        run=run,
        family=family,
        arm=arm,
        updates=updates,
        base=base,
        adapter=adapter,
        start_adapter=start,
        base_sha256=digests["model.base"][0],
        adapter_sha256=sha256_file(adapter / ADAPTER_FILE),
        start_adapter_sha256=digests["model.start_adapter"][0],
        checkpoint_sha256=marker,
        journal=journal,
        base_locked=digests["model.base"][1],
    )


def locked_digest(locked: LockedPlan, name: str) -> tuple[str, bool]:
    """(digest of the folder that the field `name` means, whether the lock has it). Raises as `find_source`."""
    resource = getattr(locked.plan.model, FIELDS[name])
    path = locate(resource, locked.path)
    if resource.owed is not None or not os.path.isdir(path):
        lacking = [line for line in missing_resources(locked) if line.startswith(f"{name}:")]
        hint = "Without --plan, places in the plan are looked for from the run folder: name the plan that was locked."
        raise UsageError(f"{locked.path}: {lacking[0] if lacking else f'{name}: {path} is no folder'}", hint=hint)
    wanted = locked.lock.resources.get(name, {}).get("sha256") or resource.sha256
    found = sha256_path(path)
    if wanted is not None and found != wanted:
        raise IntegrityError(
            f"{path}: {name} is not what {locked.path} was locked with: {wanted[:16]}... -> {found[:16]}...",
            hint="Put back the files that the plan was locked with. Nothing was merged.",
        )
    return found, wanted is not None


def _checkpoint_digest(run: RunFolder, family: str, arm: str, updates: int) -> str:
    """The digest of the checkpoint's marker. Journal and marker agree: `check_journal` has compared them."""
    folder = run.checkpoint(family, arm, updates)
    if not (folder / MARKER).is_file():
        there = [path.parts[-3].removeprefix("update-") for path in run.arm(family, arm).glob(f"update-*/checkpoint/{MARKER}")]
        known = ", ".join(f"{arm}@{number}" for number in sorted(there, key=int)) or "none"
        raise IncompleteError(f"{folder}: there is no checkpoint (of {family}/{arm} there are: {known})")
    if not folder_is_complete(folder):
        raise IntegrityError(
            f"{folder}: is not what was saved after update {updates}: a file of it was changed, or is missing",
            hint="Put the folder back from a copy. Nothing was merged.",
        )
    return sha256_file(folder / MARKER)
