"""The subject of a comparison: `ARM@UPDATES`, a checkpoint that may be judged."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ablation.errors import GateError, IncompleteError, IntegrityError, UsageError
from ablation.files import parse_json
from ablation.plan.extension import eligible_checks, extension_family
from ablation.plan.lock import LockedPlan
from ablation.plan.model import START
from ablation.plan.phase2 import evaluation_family
from ablation.plan.section import did_you_mean
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.imported import is_imported
from ablation.rollouts.store import stage_info, stage_is_complete
from ablation.study.extension import run_options


@dataclass(frozen=True)
class Subject:
    """A checkpoint of the evaluation family."""

    family: str
    arm: str
    updates: int

    @property
    def name(self) -> str:
        """As commands and folders name it."""
        return f"{self.arm}@{self.updates}"


def subjects_there(locked: LockedPlan, run: RunFolder) -> list[Subject]:
    """Every checkpoint that may be judged: arms with a readout, and eligible checks of their extension that found no damage."""
    plan, family = locked.plan, evaluation_family(locked.plan)
    found = []
    for arm in plan.arms:
        own = Subject(family, arm, plan.training.updates)
        found += [own] if _checkpoint(run, own) and stage_is_complete(run.readout(family, arm)) else []
        if plan.extension is not None and extension_family(plan) == family:
            later = [Subject(family, arm, k) for k in eligible_checks(plan.extension)]
            found += [one for one in later if _check(run, one).get("eligible") and _checkpoint(run, one)]
    return found


def find_subject(locked: LockedPlan, run: RunFolder, text: str, option: str = "--subject") -> Subject:
    """The checkpoint that `text` names.

    Raises:
        UsageError: it is not ARM@UPDATES of this plan, or no checkpoint that is ever judged.
        IncompleteError: it is not there yet.
        GateError: the check after it found damage.
    """
    plan, family = locked.plan, evaluation_family(locked.plan)
    there = ", ".join(one.name for one in subjects_there(locked, run)) or "none yet"
    match = re.fullmatch(r"([^@]+)@([0-9]{1,6})", text)
    if match is None:
        raise UsageError(f"{option}: found `{text}`; it is ARM@UPDATES, for instance {_example(locked)}", hint=f"There: {there}.")
    arm, updates = match[1], int(match[2])
    if arm not in plan.arms:
        extra = "; the start is the reference" if arm == START else did_you_mean(arm, plan.arms)
        raise UsageError(
            f"{option}: {locked.path} has no arm `{arm}`; its arms are {', '.join(plan.arms)}{extra}", hint=f"There: {there}."
        )
    subject = Subject(family, arm, updates)
    if updates == plan.training.updates:
        _need_readout(locked, run, subject, there)
    else:
        _need_check(locked, run, subject, option, there)
    if not _checkpoint(run, subject):
        raise IncompleteError(f"{run.checkpoint(family, arm, updates)}: is not there, so {subject.name} cannot be sampled")
    return subject


def _example(locked: LockedPlan) -> str:
    return f"{next(reversed(locked.plan.arms))}@{locked.plan.training.updates}"


def _need_readout(locked: LockedPlan, run: RunFolder, subject: Subject, there: str) -> None:
    family, arm = subject.family, subject.arm
    name, folder = f"{family}/{arm}", run.readout(family, arm)
    if run.stopped(family, arm).is_file():
        raise GateError(f"{name}: a stop rule ended it, so it has no readout, and nothing is compared", hint=f"There: {there}.")
    if not stage_is_complete(folder):
        where = "" if family == locked.plan.main_family else f" --family {family}"
        raise IncompleteError(
            f"{name}: has no readout yet, so there is nothing to compare (there: {there})",
            hint=f"First: ablation run --arm {arm}{where}{run_options(locked, run.root)}",
        )
    if is_imported(stage_info(folder)):
        raise GateError(f"{name}: was sampled elsewhere and imported, so its checkpoint is not here", hint=f"There: {there}.")


def _need_check(locked: LockedPlan, run: RunFolder, subject: Subject, option: str, there: str) -> None:
    plan, k = locked.plan, subject.updates
    last = plan.training.updates
    eligible = [] if plan.extension is None else eligible_checks(plan.extension)
    if k not in eligible:
        allowed = " or ".join([str(last), *map(str, eligible)])
        what = "the last update and the eligible checks of the extension are" if eligible else "the last update is"
        raise UsageError(f"{option}: found {subject.name}; {what} compared: {allowed}", hint=f"There: {there}.")
    if extension_family(plan) != subject.family:
        raise UsageError(
            f"{locked.path}: extension.family: arms are extended in {extension_family(plan)}, and evaluation.family is "
            f"{subject.family}, so {subject.name} is never there"
        )
    record = _check(run, subject)
    if not record:
        command = f"ablation run --arm {subject.arm} --continue-to {k}{run_options(locked, run.root)}"
        raise IncompleteError(
            f"{subject.family}/{subject.arm}: has no check after update {k} yet (there: {there})", hint=f"First: {command}"
        )
    if not record.get("eligible"):
        name, label = f"{subject.family}/{subject.arm}", record.get("label")
        raise GateError(
            f"{name}: the check after update {k} is {label}, so {subject.name} is not eligible",
            hint=f"There: {there}.",
        )


def _check(run: RunFolder, subject: Subject) -> dict:
    """The result of the check after the subject's last update; empty if there is none. Raises `IntegrityError` if it is none."""
    path = run.check_result(subject.family, subject.arm, subject.updates)
    try:
        found = parse_json(path.read_bytes()) if path.is_file() else {}
    except ValueError as error:
        raise IntegrityError(f"{path}: is not the result of a check ({error})") from None
    if not isinstance(found, dict):
        raise IntegrityError(f"{path}: is not the result of a check (no JSON object)")
    return found


def _checkpoint(run: RunFolder, subject: Subject) -> bool:
    return (run.checkpoint(subject.family, subject.arm, subject.updates) / "complete.json").is_file()
