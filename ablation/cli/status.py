"""`ablation status`: how far a run is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ablation.plan.lock import LockedPlan
    from ablation.study.state import ArmState, ExtensionState, RunState


def status(
    plan: Path = typer.Option(None, "--plan", help="The locked plan. Left out: the only locked one in plans/."),
    run_folder: Path = typer.Option(None, "--run", help="The run folder. Left out: runs/NAME."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show what is locked, what has been sampled and trained, and whether a runner is at work."""
    from ablation.plan.choose import choose_plan, command_options
    from ablation.plan.deviations import deviations_path, read_deviations
    from ablation.plan.lock import verify_lock
    from ablation.study.runlock import runner_at_work
    from ablation.study.state import run_state
    from ablation.study.workspace import run_root

    locked = verify_lock(choose_plan(plan))
    root = run_root(locked, run_folder)
    deviations = read_deviations(deviations_path(locked.path), locked.digest)
    state, worker = run_state(locked.plan, root, deviations), runner_at_work(root)
    if as_json:
        found = {"plan": locked.digest, "run": str(root), "runner": worker, "sweeps": state.sweeps}
        found["arms"] = [asdict(arm) | {"finished": arm.finished} for arm in state.arms]
        found["imported"] = state.imported
        typer.echo(json.dumps(found | {"extensions": [asdict(one) for one in state.extensions]}))
        return
    typer.echo(f"plan     {locked.path} (locked {locked.lock.locked_at}, {locked.digest[:12]})")
    typer.echo(f"run      {root}" + ("" if root.is_dir() else " (not begun)"))
    typer.echo(f"runner   {worker or 'none at work'}")
    for family, there in state.sweeps.items():
        typer.echo(f"sweep    {family}: {there}{' (imported)' if f'{family}/start/sweep' in state.imported else ''}")
    for arm in state.arms:
        end = "stopped by a stop rule" if arm.stopped else f"readout: {arm.readout}"
        if arm.imported:
            typer.echo(f"arm      {arm.family}/{arm.arm}: {end} (imported; not trained here)")
            continue
        typer.echo(f"arm      {arm.family}/{arm.arm}: {arm.updates_done} of {arm.updates} updates, {end}{_unstepped(arm)}")
    for one in state.extensions:
        typer.echo(f"extend   {one.family}/{one.arm}: {_extension(one, state.arms[0].updates)}")
    finished = all(arm.finished for arm in state.arms) and _replicated(root, locked, state)
    options = command_options(locked.path, run_folder)
    if not finished and state.imported:  # what is missing, and how it is imported, is the verdict's to say
        typer.echo(f"next     ablation import --stage STAGE --arm ARM{options} FILE (`ablation verdict` says what is missing)")
        return
    typer.echo(f"next     {_next(state) if finished else 'ablation run --all'}{options}")


def _unstepped(one: ArmState | ExtensionState) -> str:
    return "".join(f"; update {k}: {outcome}" for k, outcome in one.unstepped.items())


def _extension(one: ExtensionState, before: int) -> str:
    """`before`: updates that every arm has without an extension."""
    if one.updates_done == before and not one.stopped:
        return f"not begun (up to update {one.updates}, checks after {', '.join(map(str, one.checks)) or 'none'})"
    checks = ", ".join(f"{update} {label}" for update, label in one.checks.items())
    end = "" if one.paused_after is None else f"; paused by the check after update {one.paused_after}"
    end = "; stopped by a stop rule" if one.stopped else end
    return f"update {one.updates_done} of {one.updates}, checks: {checks}{end}{_unstepped(one)}"


def _next(state: RunState) -> str:
    """What follows when every arm has come to its end: an extension that was begun and can go on, or the verdict."""
    for one in state.extensions:
        begun = one.updates_done > state.arms[0].updates
        whole = one.updates_done == one.updates and not set(one.checks.values()) & {"no", "partly"}
        if begun and not (whole or one.stopped or one.paused_after):
            return f"ablation run --arm {one.arm} --continue-to {one.updates}"
    return "ablation verdict"


def _replicated(root: Path, locked: LockedPlan, state: RunState) -> bool:
    """Whether the arm that the plan replicates beside the control, if there is one, has come to its end."""
    from ablation.errors import IncompleteError
    from ablation.verdict.run import first_stable_arm

    try:
        stable = first_stable_arm(root, locked)
    except IncompleteError:  # undecided: the verdict says why, and running on cannot change it
        return True
    family = locked.plan.verdict.replication.family
    return stable is None or any(arm.finished for arm in state.arms if (arm.family, arm.arm) == (family, stable))
