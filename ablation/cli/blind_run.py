"""What the commands of the blinded read share: their options, and the comparison that they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ablation.cli.complete import subjects
from ablation.study.blind_run import BlindRun, find_comparison

__all__ = ["JSON", "KEY", "PLAN", "RATER", "RUN", "SET", "SUBJECT", "BlindRun", "find_comparison", "print_json"]

SET = Annotated[str, typer.Argument(metavar="SET", help="held-out: pairs of answers; safety: single answers to label.")]
SUBJECT = Annotated[
    str,
    typer.Option(
        "--subject", metavar="ARM@UPDATES", help="The checkpoint that was compared, for instance N@5.", autocompletion=subjects
    ),
]
PLAN = Annotated[Path | None, typer.Option("--plan", help="The locked plan. Left out: the only locked one in plans/.")]
RUN = Annotated[Path | None, typer.Option("--run", help="The run folder. Left out: runs/NAME.")]
KEY = Annotated[Path | None, typer.Option("--key", help="The sealed key. Left out: plans/NAME.keys/SET-SUBJECT.json.")]
RATER = Annotated[str, typer.Option("--rater", metavar="NAME", help="Whose ratings these are.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else goes to stderr.")]


def print_json(content: dict[str, Any]) -> None:
    typer.echo(json.dumps(content, ensure_ascii=False))
