"""`ablation run`: train and sample what the locked plan says, and nothing else."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ablation.cli.complete import arms, families, trackers
from ablation.cli.json_errors import print_json_error
from ablation.cli.machine_options import Backend, On, Processes, Server, ServerFolder, Turns
from ablation.cli.track import TRACK_HELP

if TYPE_CHECKING:
    from ablation.plan.lock import LockedPlan


def run(
    arm: str = typer.Option(
        None, "--arm", help="Run this arm: sweep (if its family has none), updates, readout.", autocompletion=arms
    ),
    every: bool = typer.Option(False, "--all", help="Run every arm in plan order, then the replication."),
    family: str = typer.Option(
        None, "--family", help="The family to run --arm in. Left out: the plan's first.", autocompletion=families
    ),
    continue_to: int = typer.Option(
        None, "--continue-to", metavar="UPDATE", min=1, help="Extend --arm to this update, as the plan's `extension` says."
    ),
    plan: Path = typer.Option(None, "--plan", help="The locked plan. Left out: the only locked one in plans/."),
    run_folder: Path = typer.Option(None, "--run", help="The run folder. Left out: runs/NAME."),
    policy: Backend = None,
    turns: Turns = None,
    server: Server = None,
    server_folder: ServerFolder = None,
    processes: Processes = None,
    on: On = None,
    track: list[str] = typer.Option([], "--track", metavar="TRACKER", help=TRACK_HELP, autocompletion=trackers),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout when done; progress on stderr."),
) -> None:
    """Run one arm, or all of them. The same command goes on where a stopped run was.

    Refuses (exit 3) unless the plan is locked and untouched. Exit 5: a stop rule of the plan ended the arm, or a check of its
    extension pauses it; exit 4: the plan does not allow this now.
    """
    from ablation.errors import UsageError
    from ablation.plan.choose import choose_plan, command_options, machine_options
    from ablation.plan.deviations import deviations_path, read_deviations
    from ablation.plan.lock import verify_lock
    from ablation.study.chosen import chosen_run
    from ablation.study.machine import this_machine
    from ablation.study.workspace import gate

    targets = []
    if track:
        from ablation.trackers.base import parse_targets

        targets = parse_targets(track, "--track")
    if every == (arm is not None):
        raise UsageError("say which: --arm NAME or --all", hint="`ablation plan show` lists the arms of a plan.")
    if every and family is not None:
        raise UsageError("--family goes with --arm; --all runs the families that the plan names")
    if every and continue_to is not None:
        raise UsageError("--continue-to goes with --arm: one arm is extended at a time")
    address = None
    if on is not None:
        from ablation.study.cluster.join import parse_on

        address = parse_on(on)
    path = choose_plan(plan)
    _refuse_unknown(verify_lock(path), arm, family)  # before all its files are read and the packages that train are loaded
    locked = gate(path)
    locked, root, named = chosen_run(locked, policy, run_folder)
    machine = this_machine(locked.plan.policy, turns, server, server_folder, processes)
    if continue_to is not None:
        from ablation.study.extension import check_request

        family = check_request(locked, family, continue_to)
    need_local_extra(locked.plan.policy.backend)
    from ablation.cli.progress import make_reporter

    if locked.plan.policy.vllm is not None and address is None and not root.exists():
        from ablation.study.backends import need_sampler

        need_sampler(locked.plan.policy.vllm.engine)  # before a folder is made that nothing comes into
    from ablation.study.next_steps import next_command
    from ablation.study.runner import open_study
    from ablation.trackers.beside import trackers_beside

    options = command_options(locked.path, run_folder, named)
    this = "--all" if every else f"--arm {arm}" + (f" --family {family}" if family else "")
    this += f" --continue-to {continue_to}" if continue_to is not None else ""
    this += machine_options(machine.record())
    opened = open_study
    if address is not None:
        from ablation.study.cluster.study import open_cluster_study

        opened, this = partial(open_cluster_study, address=address), f"{this} --on {on}"
    started = time.monotonic()
    with (
        goes_on_with(f"ablation run {this}{options}"),
        make_reporter() as reporter,
        trackers_beside(targets, locked, root, reporter.say),
        opened(locked, root, reporter, machine) as study,
    ):
        if every:
            study.run_all()
        elif continue_to is not None:
            study.extend_arm(family, arm, continue_to)
        else:
            study.run_arm(family or locked.plan.main_family, arm)
    deviations = read_deviations(deviations_path(locked.path), locked.digest)
    following = next_command(locked, root, deviations)
    if as_json:
        result = {"run": str(root), "plan": locked.digest, "arms": [arm] if arm else list(locked.plan.arms)}
        typer.echo(json.dumps(result | ({"continued_to": continue_to} if continue_to is not None else {})))
    else:
        minutes, seconds = divmod(round(time.monotonic() - started), 60)
        typer.echo(f"done in {minutes} min {seconds} s: {root}\nnext: {following}{options}", err=True)


def _refuse_unknown(locked: LockedPlan, arm: str | None, family: str | None) -> None:
    """Raise `UsageError` for an arm or a family that the plan does not have."""
    from ablation.errors import UsageError
    from ablation.plan.section import did_you_mean

    plan = locked.plan
    for what, found, known in (("arm", arm, plan.arms), ("family", family, plan.families)):
        if found is not None and found not in known:
            its = f"its {dict(arm='arms', family='families')[what]} are {', '.join(known)}"
            raise UsageError(f"{locked.path}: there is no {what} `{found}`; {its}{did_you_mean(found, known)}")


@contextmanager
def goes_on_with(command: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run with one line that says how it goes on, and 128 + the signal's number as exit code."""

    def terminated(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        message, hint = "stopped; nothing that was written is lost", f"Go on with: {command}"
        code = 130 if isinstance(stop, KeyboardInterrupt) else int(stop.code or 0)
        print(f"{message}. {hint}", file=sys.stderr)
        print_json_error(message, hint, code)
        raise typer.Exit(code) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def need_local_extra(backend: str = "local") -> None:
    """Training needs packages that a reviewer's install does not have; a service needs no model here."""
    from importlib.util import find_spec

    from ablation.errors import UsageError
    from ablation.plan.prices import SERVICES

    names, extra = ("torch", "transformers", "peft", "safetensors"), "local"
    if backend in SERVICES:
        names, extra = ("transformers", "safetensors", "tinker"), "tinker"
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"running an arm needs {', '.join(missing)}, which this install does not have",
            hint=f"pip install -e '.[{extra}]' in the checkout",
        )
