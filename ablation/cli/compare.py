"""`ablation compare`: runs of one locked plan beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders of one locked plan, two or more.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """What each backend made of the same plan: verdict, labels, rules' numbers, and how far sampler and trainer were apart.

    Verdicts are computed from each run's rollouts. Exit 3: one of the folders was touched.
    """
    from ablation.errors import UsageError
    from ablation.report.side_by_side import runs_of_one_plan

    if len(runs) < 2:
        raise UsageError("name two run folders or more: `ablation compare runs/NAME runs/NAME-vllm`")
    plan, digest, found = runs_of_one_plan(runs)
    if as_json:
        content = {"plan": {"name": plan.name, "digest": digest}, "runs": [one.as_json() for one in found]}
        typer.echo(json.dumps(content, ensure_ascii=False, allow_nan=False))
        return
    from ablation.report.side_by_side_page import pages
    from ablation.report.terminal import print_page

    for part in pages(plan, digest, found):
        print_page(part)
