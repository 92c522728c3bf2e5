"""`ablation evaluate`: a finished model and the start, sampled on a set of phase 2."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ablation.cli.complete import sets, subjects
from ablation.cli.machine_options import Backend, Processes, Server, ServerFolder, Turns

if TYPE_CHECKING:
    from ablation.study.evaluate import Compared


def evaluate(
    set_name: str = typer.Argument(
        ..., metavar="SET", help="held-out, never-used, selection, main, agent or safety.", autocompletion=sets
    ),
    subject: str = typer.Option(
        ..., "--subject", metavar="ARM@UPDATES", help="The checkpoint to compare, for instance N@5.", autocompletion=subjects
    ),
    reference: str = typer.Option("start", "--reference", help="What it is compared with: the starting model."),
    reuse: str = typer.Option(
        None,
        "--reuse-reference",
        metavar="ARM@UPDATES",
        help="Take over the start's rollouts from an earlier comparison on this set. Left out: they are sampled again.",
    ),
    plan: Path = typer.Option(None, "--plan", help="The locked plan. Left out: the only locked one in plans/."),
    run_folder: Path = typer.Option(None, "--run", help="The run folder. Left out: runs/NAME."),
    policy: Backend = None,
    turns: Turns = None,
    server: Server = None,
    server_folder: ServerFolder = None,
    processes: Processes = None,
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout when done; progress on stderr."),
) -> None:
    """Sample a checkpoint and the start on a set of the plan, in one session and the same seeds. The same command goes on where a
    stopped one was.

    Exit 4: the plan does not allow this now; the message has the command that writes down a deviation. Exit 6: the checkpoint is
    not there yet.
    """
    from ablation.cli.progress import make_reporter
    from ablation.cli.run import goes_on_with, need_local_extra
    from ablation.errors import UsageError
    from ablation.plan.choose import choose_plan, command_options, machine_options
    from ablation.plan.deviations import deviations_path, read_deviations
    from ablation.plan.model import START
    from ablation.rollouts.comparisons import in_words
    from ablation.study.chosen import chosen_run
    from ablation.study.evaluate_sets import find_set
    from ablation.study.machine import this_machine
    from ablation.study.workspace import gate

    if reference != START:
        raise UsageError(f"--reference: found `{reference}`; every model is compared with the `{START}`")
    locked, root, named = chosen_run(gate(choose_plan(plan)), policy, run_folder)
    machine = this_machine(locked.plan.policy, turns, server, server_folder, processes)
    find_set(locked, set_name)
    need_local_extra(locked.plan.policy.backend)
    from ablation.study.evaluate import evaluate as compare
    from ablation.study.next_steps import next_command

    options = command_options(locked.path, run_folder, named)
    this = f"{set_name} --subject {subject}" + (f" --reuse-reference {reuse}" if reuse else "")
    this += machine_options(machine.record())
    started = time.monotonic()
    with goes_on_with(f"ablation evaluate {this}{options}"), make_reporter() as reporter:
        found = compare(locked, root, reporter, set_name, subject, reuse, machine)
        if not found.worked:
            reporter.say(f"{in_words(set_name)}: {subject} was compared already")
    deviations = read_deviations(deviations_path(locked.path), locked.digest)
    following = f"{next_command(locked, root, deviations)}{options}"
    if as_json:
        typer.echo(json.dumps(found.record | {"run": str(root), "hours": found.hours, "next": following}))
        return
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    for line in _in_words(found):
        typer.echo(line, err=True)
    typer.echo(f"done in {minutes} min {seconds} s: {root}\nnext: {following}", err=True)


def _in_words(found: Compared) -> list[str]:
    from ablation.report.verdict_parts import hours_in_words
    from ablation.rollouts.comparisons import in_words

    record, counts = found.record, found.record["correct"]
    name, lines = in_words(record["set"]), []
    if counts is not None:
        change = counts["subject"] - counts["reference"]
        lines.append(
            f"{name}: {record['subject']} {counts['subject']} correct, the start {counts['reference']}, "
            f"of {record['rollouts']} each ({change:+d})"
        )
    if found.hours is not None:
        lines.append(f"{name}: both sampled within {hours_in_words(found.hours)}")
    return lines
