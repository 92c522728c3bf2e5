"""`ablation view`: a run, or all runs, in a browser."""

from __future__ import annotations

from pathlib import Path

import typer

from ablation.cli.machine_options import Backend
from ablation.cli.run_folder import find_run, named_run
from ablation.cli.say import say


def view(
    place: Path = typer.Argument(
        None, metavar="[RUN]", help="A run folder, or a folder of run folders. Left out: the run that you are in, or runs."
    ),
    plan: Path = typer.Option(None, "--plan", help="The run of this locked plan alone."),
    policy: Backend = None,
    host: str = typer.Option("127.0.0.1", "--host", help="Where to listen. Beyond this machine a token is asked for."),
    port: int = typer.Option(8412, "--port", min=0, max=65535, help="Port; 0 takes a free one."),
    name: list[str] = typer.Option([], "--name", metavar="HOST", help="Another name by which a browser may call this server."),
    token: bool = typer.Option(False, "--token", help="Ask for a token on this machine, too: others may have accounts on it."),
    only_reads: bool = typer.Option(False, "--only-reads", help="Serve nothing but blinded reads: for raters."),
) -> None:
    """Look at studies in a browser: live progress, curves, audits, rules, every rollout; and read answers blind.

    Nothing in a run is written but ratings of a blinded read. Ctrl-C ends it.
    """
    from ablation.errors import UsageError

    place = named_run(place, None, plan)
    if plan is not None or policy is not None:
        place = find_run(plan, place, policy)[1]
    place = Path("runs") if place is None else place
    if not place.is_dir():
        raise UsageError(f"{place}: there is no such folder", hint="Name a run folder, or the folder that holds them.")
    try:
        from ablation.view.serve import serve
    except ImportError as error:
        raise UsageError(f"the viewer needs the package {error.name}", hint="pip install -e '.[view]'") from None
    serve(place, host, port, names=tuple(name), token=token, only_reads=only_reads, say=say)
