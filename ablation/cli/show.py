"""`ablation show`: one rollout of a run, or two beside each other, or what a stage holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.cli.complete import arms_of_run, rollouts_of_run
from ablation.cli.fit import echo
from ablation.cli.machine_options import Backend
from ablation.cli.run_folder import PlanOption, RunOption, find_run, named_run, printed_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ablation.plan.lock import LockedPlan

FEW = 20
"""Rollouts of a stage that are listed unless all are asked for."""
KINDS = ("looping", "truncated", "correct", "wrong", "clean")


def show(
    rollout: Annotated[
        str,
        typer.Argument(
            metavar="ROLLOUT",
            help="FAMILY/ARM/STAGE/PROBLEM@EFFORT#INDEX, for instance main/N/update-3/sum-3@low#2. "
            "Without a rollout: what the stage holds.",
            autocompletion=rollouts_of_run,
        ),
    ],
    run: RunOption = None,
    plan: PlanOption = None,
    policy: Backend = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside", metavar="ARM", help="Also the rollout of this arm in the same place.", autocompletion=arms_of_run
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The whole thinking; otherwise its middle is folded.")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="Each sampled token with its logprob and entropy (nats).")] = False,
    only: Annotated[str | None, typer.Option("--only", metavar="KIND", help=f"Of a stage: {', '.join(KINDS)}.")] = None,
    every: Annotated[bool, typer.Option("--all", help=f"Of a stage: all rollouts, not the {FEW} longest.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Read a rollout: numbers, thinking (folded), loops in ⟦ ⟧ (periodic) and ⟪ ⟫ (strong), answer, grade.

    What a model wrote is made harmless.

    FAMILY/ARM/STAGE alone lists the longest rollouts of a stage. Of an evaluation: held-out/N@5/subject/PROBLEM@EFFORT#INDEX.
    Exit 4: the plan has these answers read blind, and the read was not opened yet.
    """
    from ablation.blind.closed import refuse_closed
    from ablation.errors import UsageError
    from ablation.rollouts.address import beside as place_of
    from ablation.rollouts.address import parse_address
    from ablation.rollouts.folder import RunFolder

    run = named_run(None, run, plan)
    locked, root, options = find_run(plan, run, policy)
    address = parse_address(rollout, root)
    other = place_of(address, root, beside) if beside and address.rest else None
    stages = [one.stage for one in (address, other) if one is not None]
    refuse_closed(RunFolder(root), locked.plan, stages, printed_options(options, run))
    if not address.rest:
        if beside or tokens or full:
            raise UsageError(
                "--beside, --tokens and --full go with one rollout", hint=f"`ablation show {address.stage}` lists them."
            )
        _list(locked, root, address.stage, only, every, as_json)
        return
    if only or every:
        raise UsageError("--only and --all go with a stage, and a rollout is named")
    if beside and tokens:
        raise UsageError("--tokens goes with one rollout, not with --beside")
    from ablation.rollouts.one import as_json as one_as_json
    from ablation.rollouts.one import find_tokenizer, read_one

    tokenizer = find_tokenizer(locked.plan, locked.path, root.resolve().parent.parent / "plans" / locked.path.name)
    found = [read_one(root, locked.plan, address, tokenizer, pieces=tokens)]
    if other is not None:
        found.append(read_one(root, locked.plan, other, tokenizer))
    if as_json:
        content = {"run": str(root), "plan": locked.digest, **one_as_json(found[0], tokens=tokens)}
        if beside:
            content["beside"] = one_as_json(found[1], tokens=False)
        typer.echo(json.dumps(content, ensure_ascii=False, allow_nan=False))
        return
    from ablation.report.rollout_page import beside_page, rollout_page
    from ablation.report.terminal import print_wide_page

    def page(width: int) -> RenderableType:
        return (
            beside_page(*found, full=full, width=width)
            if beside
            else rollout_page(found[0], full=full, tokens=tokens, width=width)
        )

    print_wide_page(page)
    if sys.stdout.isatty():
        echo(f"\nIn a browser: `ablation view {root}`.")


def _list(locked: LockedPlan, root: Path, stage_name: str, only: str | None, every: bool, as_json: bool) -> None:
    """The rollouts of a stage, the longest first."""
    import numpy as np

    from ablation.errors import UsageError
    from ablation.plan.section import did_you_mean
    from ablation.problems.problem import load_problems
    from ablation.report.rollout_page import list_page
    from ablation.report.terminal import print_page
    from ablation.rollouts.address import full_name
    from ablation.rollouts.folder import RunFolder
    from ablation.rollouts.grades import grades_of
    from ablation.rollouts.outcomes import outcomes
    from ablation.rollouts.store import read_stage

    if only is not None and only not in KINDS:
        raise UsageError(f"--only: there is no kind `{only}`{did_you_mean(only, KINDS)}", hint=f"There are: {', '.join(KINDS)}.")
    path = RunFolder(root).problems
    if stage_name.startswith("evaluations/"):
        path = RunFolder(root).set_problems(stage_name.split("/")[1])
        if path.name != "problems.jsonl":
            raise UsageError(f"{stage_name}: rollouts of {path.stem} are not listed", hint="Name one of them.")
    stage = read_stage(root / stage_name)
    own = outcomes(stage, problems := load_problems(path), locked.plan.loops, grades_of(root / stage_name, stage, problems))
    kinds = {name: getattr(own, name) for name in ("looping", "truncated", "correct", "clean")} | {"wrong": ~own.correct}
    kinds["clean"] = kinds["clean"] & ~own.redacted
    wanted = np.flatnonzero(kinds[only]) if only is not None else np.arange(len(stage))
    wanted = wanted[np.argsort(-own.total_tokens[wanted], kind="stable")]
    shown = wanted if every or as_json else wanted[:FEW]
    rows: list[dict[str, Any]] = [
        {
            "rollout": full_name(stage_name, stage, row),
            "tokens": None if own.redacted[row] else int(own.total_tokens[row]),
            "logprob": float(own.logprob[row]) if np.isfinite(own.logprob[row]) else None,
            "grade": "correct" if own.correct[row] else "no answer" if own.no_answer[row] else "wrong",
            "truncated": bool(own.truncated[row]),
            "finished": bool(own.finished[row]),
            "loop": None if own.redacted[row] else "periodic" if own.periodic[row] else "strong" if own.strong[row] else "",
        }
        for row in shown
    ]
    if as_json:
        typer.echo(
            json.dumps({"run": str(root), "plan": locked.digest, "stage": stage_name, "rollouts": rows}, ensure_ascii=False)
        )
        return
    names = [row["rollout"].removeprefix(f"{stage_name}/") for row in rows]
    print_page(list_page(names, rows, len(rows), len(wanted), len(stage), locked.plan.loops))
