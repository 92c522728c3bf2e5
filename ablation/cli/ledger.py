"""`ablation ledger`: which problem was ever sampled, trained on or evaluated."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ablation.cli.say import say

if TYPE_CHECKING:
    from ablation.ledger.ledger import Ledger, Mark

app = typer.Typer(no_args_is_help=True, help="What was ever done with a problem.")
PLACE = typer.Option(Path("runs/ledger.jsonl"), "--ledger", help="The ledger's file.")
JSON = typer.Option(False, "--json", help="One JSON object on stdout.")


@app.command()
def show(
    problem: str = typer.Option(None, "--problem", help="Only marks of the problem with this id."),
    ledger: Path = PLACE,
    as_json: bool = JSON,
) -> None:
    """List the marks: when, in which study and stage, what was done with how many problems."""
    from ablation.errors import UsageError
    from ablation.ledger.ledger import read_ledger

    found = read_ledger(ledger)
    _tell_torn(found)
    marks = [mark for mark in found.marks if problem is None or any(used.id == problem for used in mark.problems)]
    if problem is not None and not marks and not as_json:
        raise UsageError(
            f"{ledger}: no mark has a problem `{problem}`", hint="`ablation ledger check FILE` compares texts, not ids."
        )
    if as_json:
        runs = [asdict(one) for one in found.runs]
        told = {"ledger": str(ledger), "head": str(found.chain.head), "marks": [_as_json(one) for one in marks], "runs": runs}
        typer.echo(json.dumps(told))
        return
    for run in found.runs if problem is None else ():
        say(f"{run.number:>4}  {run.time}  begun      {run.study} in {run.folder}: journal {run.run[:16]}")
    for mark in marks:
        why = f": {mark.reason}" if mark.reason else ""
        where = f"{mark.study} {mark.stage}"
        say(f"{mark.number:>4}  {mark.time}  {mark.use:<9}  {len(mark.problems):>5} problems  {where}{why}")
    say(f"{len(marks)} marks in {ledger}" if ledger.exists() else f"{ledger}: there is no ledger yet", err=True)


@app.command()
def check(
    files: list[Path] = typer.Argument(None, help="Problem files to look up. None: check the ledger itself."),
    ledger: Path = PLACE,
    as_json: bool = JSON,
) -> None:
    """With FILES, say which of their problems have a mark, or are alike to one that has (exit 4 if any).

    Without, check the ledger's chain, and that it has a mark of every stage of the run folders beside it (exit 3 if not).
    """
    from ablation.errors import GateError, IntegrityError
    from ablation.ledger.ledger import read_ledger
    from ablation.problems.problem import load_problems
    from ablation.rollouts.marked import unmarked_stages

    found = read_ledger(ledger)
    _tell_torn(found)
    if files:
        conflicts = [one for path in files for one in found.conflicts(load_problems(path).values())]
        if as_json:
            entries = [
                {"problem": one.problem, "other": one.other, "near": one.near, "mark": one.mark.number} for one in conflicts
            ]
            typer.echo(json.dumps({"ledger": str(ledger), "conflicts": entries}))
            raise typer.Exit(int(GateError.exit_code) if conflicts else 0)
        if conflicts:
            raise GateError(
                "\n".join(one.in_words() for one in conflicts),
                hint=f"{len(conflicts)} problems are not new; the others have no mark.",
            )
        say(f"none of these problems has a mark, or is alike to one that has ({len(found.marks)} marks)")
        return
    lines = unmarked_stages(found, ledger.parent)
    if as_json:
        typer.echo(json.dumps({"ledger": str(ledger), "head": str(found.chain.head), "unmarked": lines}))
        raise typer.Exit(int(IntegrityError.exit_code) if lines else 0)
    if lines:
        raise IntegrityError(
            "\n".join(lines), hint="Put the ledger back from a copy, or add what it lacks: `ablation ledger import PROBLEMS ...`."
        )
    say(f"{len(found.marks)} marks; the chain holds and no run beside it lacks one; head {found.chain.head}")


@app.command("import")
def import_marks(
    files: list[Path] = typer.Argument(..., help="Problem files whose problems were used."),
    use: str = typer.Option(..., "--use", help="sampled, trained or evaluated."),
    study: str = typer.Option(..., "--study", help="Where: the name of a study, a model or a benchmark."),
    reason: str = typer.Option(..., "--reason", help="How you know."),
    stage: str = typer.Option("imported", "--stage", help="Which part of it."),
    ledger: Path = PLACE,
    as_json: bool = JSON,
) -> None:
    """Mark problems that were used outside the runs of this project."""
    from ablation.ledger.ledger import write_mark
    from ablation.problems.problem import load_problems

    loaded = [list(load_problems(path).values()) for path in files]  # all of them can be read before one is marked
    marks = [
        write_mark(ledger, plan="", study=study, stage=stage, use=use, problems=problems, reason=reason) for problems in loaded
    ]
    if as_json:
        typer.echo(json.dumps({"ledger": str(ledger), "marks": [None if one is None else _as_json(one) for one in marks]}))
        return
    for path, mark in zip(files, marks, strict=True):
        say(f"{path}: " + ("was marked so before" if mark is None else f"{len(mark.problems)} problems in mark {mark.number}"))


def _tell_torn(ledger: Ledger) -> None:
    if ledger.chain.torn:
        say(
            f"{ledger.path}: after mark {len(ledger.marks)} there are {len(ledger.chain.torn)} bytes that are no whole line: "
            "a writer was killed there, or the file was changed; they are no mark",
            err=True,
        )


def _as_json(mark: Mark) -> dict[str, Any]:
    fields = ("number", "time", "plan", "study", "stage", "use", "reason", "run")
    return {name: getattr(mark, name) for name in fields} | {"problems": [used.id for used in mark.problems]}
