"""`ablation run`: train and sample what the locked plan says, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import typer


def run(
    arm: str = typer.Option(None, "--arm", help="Run this arm: sweep (if its family has none), updates, readout."),
    every: bool = typer.Option(False, "--all", help="Run every arm in plan order, then the replication."),
    family: str = typer.Option(None, "--family", help="The family to run --arm in. Left out: the plan's first."),
    plan: Path = typer.Option(None, "--plan", help="The locked plan. Left out: the only locked one in plans/."),
    run_folder: Path = typer.Option(None, "--run", help="The run folder. Left out: runs/NAME."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout when done; progress on stderr."),
) -> None:
    """Run one arm, or all of them. The same command goes on where a stopped run was.

    Refuses (exit 3) unless the plan is locked and untouched. Exit 5: a stop rule of the plan ended the arm.
    """
    from ablation.cli.progress import make_reporter
    from ablation.errors import UsageError
    from ablation.plan.choose import choose_plan
    from ablation.study.workspace import gate, run_root

    if every == (arm is not None):
        raise UsageError("say which: --arm NAME or --all", hint="`ablation plan show` lists the arms of a plan.")
    if every and family is not None:
        raise UsageError("--family goes with --arm; --all runs the families that the plan names")
    locked = gate(choose_plan(plan))
    if arm is not None and arm not in locked.plan.arms:
        raise UsageError(f"{locked.path}: there is no arm `{arm}`; its arms are {', '.join(locked.plan.arms)}")
    if family is not None and family not in locked.plan.families:
        raise UsageError(f"{locked.path}: there is no family `{family}`; its families are {', '.join(locked.plan.families)}")
    _need_local_extra()
    from ablation.study.runner import open_study

    root = run_root(locked, run_folder)
    with make_reporter() as reporter, open_study(locked, root, reporter) as study:
        if every:
            study.run_all()
        else:
            study.run_arm(family or locked.plan.main_family, arm)
    if as_json:
        typer.echo(json.dumps({"run": str(root), "plan": locked.digest, "arms": [arm] if arm else list(locked.plan.arms)}))
    else:
        typer.echo(f"done: {root}", err=True)


def _need_local_extra() -> None:
    """Training needs packages that a reviewer's install does not have."""
    from importlib.util import find_spec

    from ablation.errors import UsageError

    missing = [name for name in ("torch", "transformers", "peft", "safetensors") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"running an arm needs {', '.join(missing)}, which this install does not have",
            hint="pip install 'ablation[local]' (in a checkout: pip install -e '.[local]')",
        )
