"""`ablation compare`: runs of one locked plan beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ablation.cli.fit import echo


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders of one locked plan, two or more.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """What each backend made of the same plan: verdict, labels, rules' numbers, and how far sampler and trainer were apart.

    Verdicts are computed from each run's rollouts. Exit 3: one of the folders was touched, and how is
    said: audits that are gone, or a `verdict.json` that the rollouts do not give.
    """
    from ablation.errors import ExitCode, UsageError
    from ablation.report.side_by_side import runs_of_one_plan

    if len(runs) < 2:
        raise UsageError("name two run folders or more: `ablation compare runs/NAME runs/NAME-vllm`")
    plan, digest, found = runs_of_one_plan(runs)
    code = ExitCode.INTEGRITY if any(one.gone or one.wrong for one in found) else ExitCode.DONE
    if as_json:
        content = {
            "plan": {"name": plan.name, "digest": digest},
            "runs": [one.as_json() for one in found],
            "exit_code": int(code),
        }
        typer.echo(json.dumps(content, ensure_ascii=False, allow_nan=False))
    else:
        from ablation.report.side_by_side_page import pages
        from ablation.report.terminal import print_page

        for part in pages(plan, digest, found):
            print_page(part)
    for one in found:
        for line in one.wrong:
            echo(line if str(one.root) in line else f"{one.root}: {line}", err=True)
        if one.gone:
            more = f" and {len(one.gone) - 1} more" if len(one.gone) > 1 else ""
            echo(f"{one.root}: not audited: the journal tells of {one.gone[0]}{more}, and it was removed", err=True)
    # a raised error would put a second object on stdout
    raise typer.Exit(int(code))
