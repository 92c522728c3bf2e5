"""Which run folder a command reads, and which locked plan it is of: shared by the commands that look at a run."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ablation.study.run_folder import find_run, refuse_odd_files

__all__ = ["PlanOption", "RunOption", "RunPath", "find_run", "named_run", "printed_options", "refuse_odd_files"]

RunPath = Annotated[
    Path | None,
    typer.Argument(metavar="[RUN]", help="The run folder, judged by its own copy of the plan. Left out: --run, or --plan's."),
]
RunOption = Annotated[
    Path | None,
    typer.Option(
        "--run",
        help="The run folder; alone it is judged by its own copy of the plan. Left out: the one that you are in, or runs/NAME.",
    ),
]
PlanOption = Annotated[Path | None, typer.Option("--plan", help="The locked plan. Left out: the only locked one in plans/.")]


def named_run(path: Path | None, run: Path | None, plan: Path | None) -> Path | None:
    """The run folder that was named, as RUN or with --run, else the one that the command is called in; None: that of the plan.

    Raises `UsageError` if it is named twice.
    """
    from ablation.errors import UsageError

    if path is not None and run is not None:
        raise UsageError("the run folder is named twice", hint="Leave --run out.")
    if path is not None or run is not None or plan is not None:
        return run if path is None else path
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if is_run(folder)), None)


def is_run(folder: Path) -> bool:
    """Whether a run was begun in `folder`."""
    return all((folder / name).is_file() for name in ("plan.yaml", "plan.lock", "journal.jsonl"))


def printed_options(options: str | None, run: Path | None) -> str:
    """For a printed command: the options that `find_run` gave, or the run folder where that was named alone."""
    return f" --run {quote(str(run))}" if options is None and run is not None else options or ""
