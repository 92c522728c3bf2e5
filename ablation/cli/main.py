"""The `ablation` command: what can be said, and how an expected error ends.

Heavy packages are imported by the commands that need them, so that `ablation --help` is quick and needs no torch.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

import typer

from ablation.cli import journal, plan, prepare, run, status, verdict
from ablation.errors import AblationError, ExitCode, UsageError

app = typer.Typer(
    name="ablation",
    help="Pre-registered ablations of RL fine-tuning: write a plan, lock it, run it, let the rules speak.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(plan.app, name="plan")
app.add_typer(journal.app, name="journal")
app.command("prepare")(prepare.prepare)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("verdict")(verdict.verdict)


def _version(asked: bool) -> None:
    if asked:
        from ablation import __version__

        typer.echo(f"ablation {__version__}")
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version.")) -> None:
    pass


def main() -> NoReturn:
    """Run the command line; an expected error is one or two lines on stderr and its exit code."""
    try:
        app(standalone_mode=True)
    except AblationError as error:
        fail(error)
    except KeyboardInterrupt:
        print("\ninterrupted: run the same command again and it goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of our output has gone (`ablation status | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(ExitCode.DONE) from None
    except OSError as error:  # a file that cannot be read or a disk that refuses, wherever it was met
        if error.filename is None or error.strerror is None:
            raise
        fail(UsageError(f"{os.fsdecode(error.filename)}: {error.strerror}", hint="Look at the path and its permissions."))
    raise SystemExit(ExitCode.DONE)


def fail(error: AblationError) -> NoReturn:
    """Say what is wrong and what to do; with `--json` the same as one object on stdout."""
    for line in error.lines():
        print(line, file=sys.stderr)
    if "--json" in sys.argv[1:]:
        print(json.dumps({"error": error.message, "hint": error.hint, "exit_code": int(error.exit_code)}, ensure_ascii=False))
    raise SystemExit(int(error.exit_code))
