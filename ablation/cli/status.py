"""`ablation status`: how far a run is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer


def status(
    plan: Path = typer.Option(None, "--plan", help="The locked plan. Left out: the only locked one in plans/."),
    run_folder: Path = typer.Option(None, "--run", help="The run folder. Left out: runs/NAME."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show what is locked, what has been sampled and trained, and whether a runner is at work."""
    from ablation.plan.choose import choose_plan
    from ablation.plan.lock import verify_lock
    from ablation.study.runlock import runner_at_work
    from ablation.study.state import run_state
    from ablation.study.workspace import run_root

    locked = verify_lock(choose_plan(plan))
    root = run_root(locked, run_folder)
    state, worker = run_state(locked.plan, root), runner_at_work(root)
    if as_json:
        arms = [asdict(arm) | {"finished": arm.finished} for arm in state.arms]
        typer.echo(json.dumps({"plan": locked.digest, "run": str(root), "runner": worker, "sweeps": state.sweeps, "arms": arms}))
        return
    typer.echo(f"plan     {locked.path} (locked {locked.lock.locked_at}, {locked.digest[:12]})")
    typer.echo(f"run      {root}" + ("" if root.is_dir() else " (not begun)"))
    typer.echo(f"runner   {worker or 'none at work'}")
    for family, there in state.sweeps.items():
        typer.echo(f"sweep    {family}: {there}")
    for arm in state.arms:
        end = "stopped by a stop rule" if arm.stopped else f"readout: {arm.readout}"
        typer.echo(f"arm      {arm.family}/{arm.arm}: {arm.updates_done} of {arm.updates} updates, {end}")
    if all(arm.finished for arm in state.arms):
        typer.echo("next     ablation verdict")
    else:
        typer.echo("next     ablation run --all")
