"""`ablation measure`: what one text is measured as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ablation.plan.model import Plan
    from ablation.rollouts.text_measures import Spans

BY_GOLD = ("integer", "exact", "choice", "math")
"""Graders that need no more than a gold."""


def measure(
    file: Path = typer.Argument(..., help="A text, or a stage folder of a run (with --rollout)."),
    rollout: str = typer.Option(None, "--rollout", help="Which one of a stage, for instance 'sum-3@low #2'."),
    plan: Path = typer.Option(None, "--plan", help="Take loop settings and tags from this plan. Left out: the defaults."),
    tokenizer: Path = typer.Option(None, "--tokenizer", help="A folder with tokenizer.json. Left out: characters are counted."),
    opened: bool = typer.Option(False, "--opened", help="The text begins inside the thinking."),
    open_tag: str = typer.Option(None, "--open", help="Tag that opens the thinking. Left out: the plan's, or <think>."),
    close_tag: str = typer.Option(None, "--close", help="Tag that closes it. Left out: the plan's, or </think>."),
    grader: str = typer.Option(None, "--grader", help="Grade the answer against --gold, for instance math."),
    gold: str = typer.Option(None, "--gold", help="The right answer for --grader."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Thinking and answer, loops with the repeated stretch marked, CJK share, and the grade of one text."""
    from ablation.errors import UsageError
    from ablation.plan.load import load_plan
    from ablation.plan.model import Loops
    from ablation.rollouts.text_measures import measure_text

    if (grader is None) != (gold is None):
        raise UsageError("--grader and --gold go together")
    settings: Plan | None = None if plan is None else load_plan(plan).plan
    tags = ("<think>", "</think>") if settings is None else (settings.model.tokens.open, settings.model.tokens.close)
    tags = (tags[0] if open_tag is None else open_tag, tags[1] if close_tag is None else close_tag)
    if not all(tags) or tags[0] == tags[1]:
        raise UsageError(f"--open, --close: found `{tags[0]}` and `{tags[1]}`; the tags must be two, and none of them empty")
    text, opened = _text(file, rollout, tags, opened)
    loops = Loops() if settings is None else settings.loops
    found = measure_text(text, loops, tags=tags, opened=opened, tokenize=None if tokenizer is None else _tokenizer(tokenizer))
    grade = None if grader is None else _grade(grader, gold, found.answer)
    from ablation.report.text_page import text_json, text_page

    if as_json:
        typer.echo(json.dumps(text_json(found, grade), ensure_ascii=False))
        return
    from ablation.report.terminal import print_page

    print_page(text_page(found, text, grade))


def _text(file: Path, rollout: str | None, tags: tuple[str, str], opened: bool) -> tuple[str, bool]:
    """(the text, whether it begins inside the thinking)."""
    from ablation.errors import UsageError
    from ablation.rollouts.store import read_stage

    _refuse_closed(file)
    if not file.is_dir():
        if rollout is not None:
            raise UsageError(f"--rollout goes with the folder of a stage; {file} is none")
        try:
            return file.read_bytes().decode("utf-8"), opened
        except OSError as error:
            raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{file}: not UTF-8 (byte {error.start})", hint="Save the text as UTF-8.") from error
    stage = read_stage(file)
    names = [stage.name(row) for row in range(len(stage))]
    if rollout not in names:
        raise UsageError(
            f"--rollout: {'name one' if rollout is None else f'there is no `{rollout}`'} of the {len(names)} rollouts in {file}, "
            f"for instance '{names[0]}'"
        )
    row = names.index(rollout)
    if stage.redacted[row]:
        raise UsageError(f"{file}: the thinking of {rollout} was redacted where it was sampled, so it cannot be measured")
    thinking, answer = stage.thinking_text[row], stage.answer_text[row]
    closed = stage.info.think_close_id in stage.token_ids[stage.offsets[row] : stage.offsets[row + 1]]
    return (f"{tags[0]}{thinking}{tags[1]}{answer}" if closed else f"{tags[0]}{thinking}" if thinking else answer), False


def _refuse_closed(file: Path) -> None:
    """Raise `GateError` if what is named is an answer of a run whose plan has it read blind, and that read was not opened."""
    folder = file.resolve() if file.is_dir() else file.resolve().parent
    for root in folder.parents:
        stage = folder.relative_to(root).parts
        if stage[0] == "evaluations" and len(stage) >= 4 and (root / "plan.yaml").is_file():
            from shlex import quote

            from ablation.blind.closed import refuse_closed
            from ablation.rollouts.folder import RunFolder
            from ablation.study.run_folder import own_plan

            refuse_closed(RunFolder(root), own_plan(root).plan, ["/".join(stage[:4])], f" --run {quote(str(root))}")


def _tokenizer(folder: Path) -> Callable[[str], Spans]:
    from ablation.errors import UsageError
    from ablation.imports.tokens import FILE, load_tokenizer

    path = folder / FILE
    if not path.is_file():
        raise UsageError(f"--tokenizer: there is no {path}")
    found = load_tokenizer(path)
    return lambda text: found.encode(text, add_special_tokens=False).offsets


def _grade(grader: str, gold: str, answer: str) -> str:
    from ablation.errors import UsageError
    from ablation.problems.grade import grade
    from ablation.problems.problem import Problem

    if grader not in BY_GOLD:
        raise UsageError(f"--grader: found `{grader}`; those that need no more than a gold are: {', '.join(BY_GOLD)}")
    found = grade(Problem("text", "text", "text", grader, gold), answer)
    reason = f" ({found.reason})" if found.reason else ""
    return f"{found.status}{reason}" + (f": {found.extracted}" if found.extracted is not None else "")
