"""`ablation import`: rollouts of another trainer, as a stage of a locked plan's run."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from ablation.cli.complete import arms, families
from ablation.cli.machine_options import Backend
from ablation.cli.say import say


def import_rollouts(
    files: list[Path] = typer.Argument(
        None, metavar="FILE...", help="JSON Lines, Parquet or Inspect logs (.eval); all of one stage."
    ),
    stage: str = typer.Option(..., "--stage", help="sweep (the starting model), readout, or update."),
    arm: str = typer.Option(None, "--arm", help="Whose readout or update this is.", autocompletion=arms),
    family: str = typer.Option(None, "--family", help="The set of seeds. Left out: the plan's first.", autocompletion=families),
    update: int = typer.Option(None, "--update", help="Which update, with --stage update."),
    plan: Path = typer.Option(None, "--plan", help="The locked plan. Left out: the only locked one in plans/."),
    run: Path = typer.Option(None, "--run", help="The run folder. Left out: runs/NAME."),
    policy: Backend = None,
    tokenizer: Path = typer.Option(
        None, "--tokenizer", help="A folder with the model's tokenizer.json. Left out: the plan's model."
    ),
    ids: str = typer.Option(None, "--ids", metavar="OPEN,CLOSE,END", help="Token ids of the plan's tags and end tokens."),
    effort: str = typer.Option(None, "--effort", help="The effort of every row that does not say its own."),
    opens: bool = typer.Option(
        None, "--prompt-opens-thinking/--no-prompt-opens-thinking", help="Whether every prompt ends inside the thinking."
    ),
    by_count: bool = typer.Option(
        False, "--finish-by-count", help="No finish reasons: texts within 1% of the cap count as cut; marked in every label."
    ),
    listed: bool = typer.Option(False, "--list", help="Import nothing: print each rollout that the stage needs, with its seed."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Bring rollouts that were sampled elsewhere: checked whole, paired with the sweep, and marked as imported in every label.

    Needs no model. Columns: see runs/README.md. Nothing is written unless every row is right.
    """
    from ablation.errors import UsageError
    from ablation.imports.stage import grade_imported, import_stage, make_request, wanted_lines
    from ablation.plan.choose import choose_plan, command_options
    from ablation.plan.lock import verify_lock
    from ablation.study.run_folder import chosen_root

    if listed == bool(files):
        raise UsageError("name the files to import" if not files else "--list imports nothing, so it takes no files")
    for path in files or []:
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file")
    locked = verify_lock(choose_plan(plan))
    root, named = chosen_root(locked, policy, run)
    said = {"files": files or [], "tokenizer": tokenizer, "ids": ids, "effort": effort, "opens": opens, "by_count": by_count}
    request = make_request(locked, stage, arm, family, update, **said)
    if listed:
        lines = wanted_lines(locked, request)
        typer.echo(f'{{"rollouts": [{", ".join(lines)}]}}' if as_json else "\n".join(lines))
        return
    done = import_stage(locked, root, request)
    problems = grade_imported(locked, root, done.folder)
    options = command_options(locked.path, run, named)
    following = f"ablation grade{options}" if problems else f"ablation status{options}"
    if as_json:
        content = {"stage": str(done.folder), "rollouts": done.rollouts, "tokens": done.tokens, "engine": done.info.engine}
        content |= {"unused": done.unused, "notes": done.notes, "grading": problems}
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    say(f"imported {done.rollouts} rollouts, {done.tokens} tokens: {done.folder}")
    for line in done.notes:
        say(f"  {line}")
    if done.unused:
        say(f"  columns that were not used: {', '.join(done.unused)}")
    for line in problems:
        say(f"  {line}")
    say(f"next: {following}", err=True)
