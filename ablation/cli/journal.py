"""`ablation journal`: the head of a run's journal, to be kept where nobody who writes the run can change it."""

from __future__ import annotations

import json

import typer

from ablation.cli.machine_options import Backend
from ablation.cli.run_folder import PlanOption, RunOption, RunPath, named_run

app = typer.Typer(no_args_is_help=True, help="The record of when a run did what.")


@app.callback()
def _group() -> None:
    """Keeps `head` a subcommand while it is the only one."""


@app.command()
def head(
    path: RunPath = None,
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Check a run's journal and print its head, LENGTH:SHA256.

    Put the line into git or send it to a reviewer: `ablation plan verify --journal-head` then finds any later cut or edit.
    """
    from ablation.plan.choose import choose_plan
    from ablation.plan.lock import verify_lock
    from ablation.rollouts.folder import RunFolder
    from ablation.rollouts.journal_chain import check_journal
    from ablation.study.run_folder import chosen_root

    run = named_run(path, run, plan)
    locked = verify_lock(RunFolder(run).plan if plan is None and run is not None else choose_plan(plan))
    root, _ = chosen_root(locked, policy, run)
    state = check_journal(root, locked.digest)
    for note in state.notes:
        typer.echo(note, err=True)
    typer.echo(json.dumps({"run": str(root)} | state.as_json()) if as_json else str(state.head))
