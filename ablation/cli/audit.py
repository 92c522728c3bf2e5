"""`ablation audit`: an independent path from a run's rollouts to its labels, and the weights that trained it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ablation.cli.complete import arms, families
from ablation.cli.default_command import DefaultCommand
from ablation.cli.fit import echo
from ablation.cli.machine_options import Backend
from ablation.cli.pointer import HELP as AT_HELP
from ablation.cli.pointer import print_at
from ablation.cli.run_folder import PlanOption, RunOption, RunPath, find_run, named_run, refuse_odd_files

app = typer.Typer(
    cls=DefaultCommand,
    rich_markup_mode=None,
    subcommand_metavar="[RUN] | COMMAND [ARGS]...",
    help="""Check a run from what it left on disk.

    `ablation audit RUN` reads the rollouts of the run folder RUN with code of its own, comes to every label by a path of its own,
    and compares all that is stored, and the engine's verdict, with it. Without RUN: the usual run of the only locked plan.
    Options of this check: `ablation audit run --help`.
    """,
)


@app.command("run")
def check(
    path: RunPath = None,
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    regrade: Annotated[bool, typer.Option("--regrade", help="Ask slow graders, too, whatever grades are stored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """The default: every file of a run against its rollouts, and labels by a path of its own. `ablation audit RUN` is the same.

    Exit 3: something differs, a line each. Exit 6: nothing differs, but something is missing.
    """
    from ablation.audit.run import audit_run
    from ablation.report.audit_run_page import page

    root, beside = _which(named_run(path, run, plan), plan, policy)
    refuse_odd_files(root)
    found = audit_run(root, plan=beside, regrade=regrade)
    if as_json:
        typer.echo(json.dumps(found.as_json(), ensure_ascii=False, allow_nan=False))
    else:
        echo(page(found))
    # a raised error would put a second object on stdout
    raise typer.Exit(found.exit_code)


def _which(run: Path | None, plan: Path | None, policy: str | None) -> tuple[Path, Path | None]:
    """(the run folder, the plan beside it; None if the folder is judged by its own copy). The plan is not read here: whatever is
    wrong with it is for the audit to say."""
    from ablation.errors import IncompleteError, UsageError
    from ablation.plan.choose import choose_plan, named_options
    from ablation.plan.lock import read_lock
    from ablation.rollouts.folder import RunFolder
    from ablation.study.chosen import choose_backend, folder_of_backend, refuse_other_backend

    if run is not None and not run.is_dir():
        raise UsageError(f"{run}: there is no such run folder", hint="Run folders are at runs/NAME.")
    path = RunFolder(run).plan if run is not None and plan is None else choose_plan(plan)
    if run is not None:
        if policy is not None:
            allowed = _backends(read_lock(path).content["plan"])
            refuse_other_backend(allowed, run, str(choose_backend(allowed, path, policy)))
        return run, None if plan is None else path
    locked = read_lock(path).content["plan"]
    allowed = _backends(locked)
    folder = path.parent.parent if path.resolve().parent.name == "plans" else path.parent
    backend = choose_backend(allowed, path, policy)
    run = folder_of_backend(folder / "runs" / str(locked["name"]), allowed, backend)
    if not run.is_dir():
        hint = f"`ablation run --all{named_options(plan, None, backend)}` makes one."
        raise IncompleteError(f"{run}: there is no run of {path} yet", hint=hint)
    return run, path


def _backends(locked: dict[str, Any]) -> list[str]:
    """Of a plan as a lock has it."""
    policy = locked.get("policy") or {}
    return [str(policy.get("backend", "local")), *map(str, policy.get("also") or ())]


@app.command()
def weights(
    path: RunPath = None,
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    arm: Annotated[
        list[str] | None, typer.Option("--arm", metavar="ARM", help="Only this arm; may be given again.", autocompletion=arms)
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option("--family", metavar="FAMILY", help="Only this family; may be given again.", autocompletion=families),
    ] = None,
    detail: Annotated[bool, typer.Option("--detail", help="Also by source and by effort.")] = False,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Compute the weights again from the rollouts, where that needs no model.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else on stderr.")] = False,
    at: Annotated[list[str] | None, typer.Option("--at", metavar="PLACE", help=AT_HELP)] = None,
) -> None:
    """The weights that trained, update by update: signs, net, truncated and KL share; and whether what must hold of them does.

    Exit 3: an identity fails, an audit is not what the rollouts give, or something was edited.
    """
    from ablation.errors import ExitCode, IncompleteError
    from ablation.report.audit_tables import audit_content, audit_page
    from ablation.training.run_audit import audit_run

    locked, root, options = find_run(plan, named_run(path, run, plan), policy)
    families, arms = _chosen("family", family, locked.plan.families), _chosen("arm", arm, locked.plan.arms)
    found = audit_run(root, locked, families=families, arms=arms, recompute=recompute)
    if not found.updates and not found.outside:
        command = "whoever made it has to go on with it" if options is None else f"`ablation run --all{options}` makes one"
        raise IncompleteError(f"{root}: no update of {', '.join(arms)} has been trained in {', '.join(families)}", hint=command)
    problems, code = found.problems(), ExitCode.DONE
    if problems:
        code = ExitCode.INTEGRITY
    content = audit_content(found, locked.plan, str(root)) | {"exit_code": int(code)}
    if at:
        print_at(content, at)
    elif as_json:
        typer.echo(json.dumps(content, ensure_ascii=False, allow_nan=False))
    else:
        from ablation.report.terminal import print_page

        print_page(audit_page(content, detail=detail))
    notes = [f"warning: {line}" for line in locked.warnings] + [f"note: {line}" for line in found.notes]
    for line in [*notes, *problems]:
        print(line, file=sys.stderr)
    # a raised error would put a second object on stdout
    raise typer.Exit(int(code))


def _chosen(what: str, wanted: list[str] | None, known: dict) -> list[str]:
    """`wanted`, or all of the plan's, in plan order."""
    from ablation.errors import UsageError
    from ablation.plan.section import did_you_mean

    for name in wanted or ():
        if name not in known:
            raise UsageError(
                f"--{what}: the plan has no {what} `{name}`{did_you_mean(name, known)}", hint=f"It has: {', '.join(known)}."
            )
    return [name for name in known if not wanted or name in wanted]
