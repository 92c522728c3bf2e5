"""The extension: what may go on, what a check says, and what pauses it. `runner.Study` does the work in between."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ablation.errors import ExtensionPaused, GateError, IncompleteError, UsageError
from ablation.plan.choose import command_options
from ablation.plan.deviations import Deviation, opened_by, pause_gate
from ablation.plan.extension import FIRST_STABLE, eligible_checks, extension_family
from ablation.plan.lock import LockedPlan
from ablation.study.run_folder import run_root
from ablation.verdict.model import DAMAGED, REPLICATED, STABLE, UNDECIDED, ArmVerdict
from ablation.verdict.run import first_stable_arm, judge_run


def deviate_command(locked: LockedPlan, root: Path, gate: str) -> str:
    """The command that writes down a deviation which opens `gate`, for a message."""
    where = "" if root.resolve() == run_root(locked, None).resolve() else f" --run {shlex.quote(str(root))}"
    plan = shlex.quote(str(locked.path))
    return f"`ablation plan deviate {plan}{where} --opens {gate} --seen results --reason ...`"


def check_request(locked: LockedPlan, family: str | None, continue_to: int) -> str:
    """The family in which the extension runs. Raises `UsageError` naming the field that does not allow what is asked for."""
    extension = locked.plan.extension
    if extension is None:
        raise UsageError(
            f"{locked.path}: the plan has no section `extension`, so no arm goes on after its readout",
            hint="An extension is part of what is locked: it needs a plan of its own.",
        )
    own = extension_family(locked.plan)
    if family not in (None, own):
        raise UsageError(f"{locked.path}: extension.family: an arm is extended in {own}, not in {family}")
    if continue_to > extension.updates:
        raise UsageError(
            f"{locked.path}: extension.updates: the plan ends at update {extension.updates}; found --continue-to {continue_to}"
        )
    return own


def open_gate(root: Path, locked: LockedPlan, deviations: list[Deviation], arm: str) -> Deviation | None:
    """The deviation under which `arm` is extended; None if the plan allows it as it is.

    Raises `GateError` if neither does, `IncompleteError` if the first stable arm is not known yet.
    """
    extension = locked.plan.extension
    assert extension is not None
    opened = opened_by(deviations, "extension")
    if opened is not None:
        return opened
    hint = f"Running it anyway is a deviation, written before it is run: {deviate_command(locked, root, 'extension')}."
    label = judge_run(root, locked, run_options(locked, root)).label
    if label != REPLICATED:
        raise GateError(f"{root}: the extension needs {REPLICATED}; the verdict on this run is {label}", hint=hint)
    allowed = [first_stable_arm(root, locked)] if extension.arms == FIRST_STABLE else extension.arms
    if arm not in allowed:
        raise GateError(f"{locked.path}: extension.arms: the plan extends {', '.join(map(str, allowed))}, not {arm}", hint=hint)
    return None


def not_as_planned(root: Path, locked: LockedPlan, arm: str) -> list[str]:
    """What the plan does not allow about extending `arm`, in words. What cannot be said (yet) is left out."""
    extension, found = locked.plan.extension, []
    assert extension is not None
    try:
        allowed = [first_stable_arm(root, locked)] if extension.arms == FIRST_STABLE else extension.arms
        if arm not in allowed:
            found.append(f"the plan extends {', '.join(one or 'no arm' for one in allowed)}, not {arm}")
        label = judge_run(root, locked, run_options(locked, root)).label
        found += [f"the verdict on this run is {label}, not {REPLICATED}"] if label != REPLICATED else []
    except IncompleteError:
        pass  # a verdict that cannot be computed: the deviation goes before it
    return found


def need_readout(there: bool, locked: LockedPlan, root: Path, family: str, arm: str) -> None:
    """Raise `IncompleteError` unless the arm has come to its readout."""
    if not there:
        where = "" if family == locked.plan.main_family else f" --family {family}"
        command = f"ablation run --arm {arm}{where}{run_options(locked, root)}"
        raise IncompleteError(f"{family}/{arm}: has no readout yet, so there is nothing to extend", hint=f"First: {command}")


def run_options(locked: LockedPlan, root: Path) -> str:
    """Options of a printed command that goes on with this run: each only where the command would not find it by itself."""
    usual = root.resolve() == run_root(locked, None).resolve()
    return command_options(locked.path, None if usual else root)


def check_record(locked: LockedPlan, found: ArmVerdict, update: int) -> dict[str, Any]:
    """What `check.json` holds: the label of the check, its rules with their numbers, why it pauses the run (null: it does not),
    and whether its checkpoint may be chosen later.
    """
    assert locked.plan.extension is not None
    return {
        "family": found.family,
        "arm": found.arm,
        "update": update,
        "label": found.label,
        "rules": [one.as_json() for one in found.rules],
        "pauses": _why_it_pauses(found),
        "eligible": found.label == STABLE and update in eligible_checks(locked.plan.extension),
    }


def _why_it_pauses(found: ArmVerdict) -> str | None:
    """In words; None if the check does not pause the run. What cannot be said pauses it, too: it is no pass."""
    if found.label == DAMAGED:
        return "; ".join(f"{one.rule.name}: {one.words}" for one in found.rules if one.holds)
    if found.label == UNDECIDED:
        return "; ".join(f"{one.rule.name} cannot be said: {one.reason}" for one in found.rules if one.holds is None)
    return None


def paused(locked: LockedPlan, root: Path, record: dict[str, Any]) -> ExtensionPaused:
    """The error that a paused extension ends with."""
    arm, update = record["arm"], record["update"]
    return ExtensionPaused(
        f"{record['family']}/{arm}: the check after update {update} pauses the extension: {record['pauses']}",
        hint="That was its last update: there is nothing to go on to, and the check's label stays."
        if locked.plan.extension is not None and update == locked.plan.extension.updates
        else "It can be left so. Going on is a deviation, after which the same command goes on: "
        f"{deviate_command(locked, root, pause_gate(arm, update))}.",
    )
