"""The `ablation` command: what can be said, and how an expected error ends.

Heavy packages are imported by the commands that need them, so that `ablation --help` is quick and needs no torch.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from ablation.cli import (
    arms,
    audit,
    blind,
    compare,
    doctor,
    evaluate,
    grade,
    import_rollouts,
    journal,
    ledger,
    measure,
    merge,
    plan,
    prepare,
    problems,
    report,
    run,
    show,
    status,
    track,
    verdict,
    view,
)
from ablation.cli.json_errors import print_json_error
from ablation.errors import AblationError, ExitCode, UsageError
from ablation.files import only_plain_files
from ablation.memory import bound_memory, refuse_too_little
from ablation.report.safe import clean

LOAD_MODELS = ("doctor", "evaluate", "merge", "prepare", "run")
"""Commands that take what memory they need. The others read what anybody may have made."""


class _Passed(Exception):
    """Carries past typer what it would turn into an exit code without a word."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError) as error:
            raise _Passed(error) from error
        except SystemExit as ended:  # what rich makes of a broken pipe
            if isinstance(ended.__context__, BrokenPipeError):
                raise _Passed(ended.__context__) from ended
            raise


app = typer.Typer(
    name="ablation",
    cls=_Commands,
    help="Pre-registered ablations of RL fine-tuning: write a plan, lock it, run it, let the rules speak.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(plan.app, name="plan")
app.add_typer(arms.app, name="arms")
app.add_typer(audit.app, name="audit")
app.add_typer(blind.app, name="blind")
app.command("compare")(compare.compare)
app.command("doctor")(doctor.doctor)
app.command("evaluate")(evaluate.evaluate)
app.command("grade")(grade.grade)
app.command("import")(import_rollouts.import_rollouts)
app.add_typer(journal.app, name="journal")
app.add_typer(ledger.app, name="ledger")
app.command("measure")(measure.measure)
app.add_typer(merge.app, name="merge")
app.add_typer(problems.app, name="problems")
app.command("prepare")(prepare.prepare)
app.command("report")(report.report)
app.command("run")(run.run)
app.command("show")(show.show)
app.command("status")(status.status)
app.command("track")(track.track)
app.command("verdict")(verdict.verdict)
app.command("view")(view.view)


def _version(asked: bool) -> None:
    if asked:
        from ablation import __version__

        typer.echo(f"ablation {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    no_color: bool = typer.Option(False, "--no-color", help="No colours, as with NO_COLOR in the environment."),
) -> None:
    if no_color:
        os.environ["NO_COLOR"] = "1"


def main() -> NoReturn:
    """Run the command line; an expected error is one or two lines on stderr and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a terminal that cannot show a character gets its escape
            stream.reconfigure(errors="backslashreplace")
    command = next((one for one in sys.argv[1:] if not one.startswith("-")), None)
    try:
        if command is not None:
            refuse_too_little()
        if command not in LOAD_MODELS:
            bound_memory()
        with nullcontext() if command in LOAD_MODELS else only_plain_files():
            code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone (`ablation status | head`)
        _drop_output()
        code = ExitCode.DONE
    except AblationError as error:
        fail(error)
    except MemoryError:
        fail(UsageError("there is not enough free memory to read this", hint="Look for a file that is too large."))
    except OSError as error:  # a file that cannot be read or a disk that refuses, wherever it was met
        if error.strerror is None:
            raise
        if error.filename is None:
            if not os.stat(".").st_nlink:
                fail(UsageError("the folder that you are in is gone", hint="Go to one that is there: cd FOLDER."))
            _drop_output()
            fail(UsageError(f"the output could not be written: {error.strerror}"))
        fail(UsageError(f"{os.fsdecode(error.filename)}: {error.strerror}", hint="Look at the path and its permissions."))
    raise SystemExit(code)


def _run() -> int | str | None:
    """The exit code of the command, as typer raises it."""
    try:
        code = app(standalone_mode=False)
    except SystemExit as ended:
        return ended.code
    except _Passed as passed:
        if not isinstance(passed.error, KeyboardInterrupt):
            raise passed.error from None
        message = "interrupted: run the same command again and it goes on from here"
        print(f"\n{message}", file=sys.stderr)
        print_json_error(message, None, 130)
        return 130
    except Exception as error:
        if not hasattr(error, "format_message"):  # of click, or of typer's own copy of it
            raise
        return _wrong_arguments(error)
    return ExitCode.DONE if code is None else code


def _wrong_arguments(error: Any) -> int:
    """Say what typer found wrong with the command line."""
    error.message = clean(error.message)
    error.show()
    context = getattr(error, "ctx", None)
    command = "ablation" if context is None else context.command_path
    print_json_error(error.format_message(), f"`{command} --help` says what there is.", error.exit_code)
    return error.exit_code


def _drop_output() -> None:
    """What is still in the buffer of stdout would fail once more when the program ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(error: AblationError) -> NoReturn:
    """Say what is wrong and what to do; with `--json` the same as one object on stdout."""
    for line in error.lines():
        print(clean(line), file=sys.stderr)
    print_json_error(error.message, error.hint, int(error.exit_code))
    raise SystemExit(int(error.exit_code))
