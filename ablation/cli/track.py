"""`ablation track`: a run's figures to a tracker, after the run or beside it."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ablation.cli.complete import trackers
from ablation.cli.machine_options import Backend
from ablation.cli.run_folder import PlanOption, RunOption, RunPath, find_run, named_run

if TYPE_CHECKING:
    from ablation.plan.lock import LockedPlan
    from ablation.trackers.base import Target

TRACK_HELP = (
    "Also tell a tracker of every update, from a process of its own: tensorboard[=DIR], wandb[=PROJECT], mlflow[=URI] or "
    "trackio[=PROJECT]; may be given again."
)


def track(
    path: RunPath = None,
    run: RunOption = None,
    to: list[str] = typer.Option(
        ...,
        "--to",
        metavar="TRACKER",
        autocompletion=trackers,
        help="tensorboard[=DIR], wandb[=PROJECT], mlflow[=URI] or trackio[=PROJECT]; may be given again.",
    ),
    plan: PlanOption = None,
    policy: Backend = None,
    follow: bool = typer.Option(False, "--follow", help="Go on until Ctrl-C: a run at work is told of as it comes."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Send the figures of a run to trackers: numbers and the plan's names, never a prompt or a text.

    Each update is sent once, however often this is run; what `ablation run --track` sent already is not sent again.
    """
    from ablation.errors import IncompleteError
    from ablation.rollouts.folder import RunFolder
    from ablation.rollouts.journal_chain import check_journal
    from ablation.trackers.base import parse_targets

    targets = parse_targets(to, "--to")
    locked, root, _ = find_run(plan, named_run(path, run, plan), policy)
    if not RunFolder(root).journal.is_file():
        raise IncompleteError(f"{root}: there is no run yet", hint="`ablation run --all` makes one.")
    check_journal(root, locked.digest)
    found = {}
    for target in targets:
        where, sent = _send(target, locked, root, follow=follow and target is targets[-1])
        found[target.kind] = {"points": sent, "where": where}
        if not as_json:
            typer.echo(f"{target.kind}: {sent} points sent" + ("" if sent else " (all were there already)") + f"; {where}")
    if as_json:
        typer.echo(json.dumps({"run": str(root), "plan": locked.digest, "trackers": found}))


def _send(target: Target, locked: LockedPlan, root: Path, *, follow: bool) -> tuple[str, int]:
    """(where to look, points sent)."""
    from ablation.errors import UsageError
    from ablation.trackers.follow import EVERY, Follower, alone, in_words
    from ablation.trackers.points import open_source

    try:
        # What a tracker's package prints is no result of this command.
        with redirect_stdout(io.StringIO()):
            tracker = target.open(locked.plan.name)
        with redirect_stdout(io.StringIO()), alone(target, locked.digest, _patience(5.0)) as held:
            if not held:
                raise UsageError(
                    f"--to {target.kind}: another process is telling it of this plan right now",
                    hint="A run with --track does so to its end; wait for that, or for the other `ablation track`.",
                )
            follower = Follower(open_source(locked.plan, root), locked.digest, tracker)
            try:
                follower.catch_up()
                while follow:
                    time.sleep(EVERY)
                    follower.catch_up()
            except KeyboardInterrupt:
                if not follow:
                    raise
            follower.pause()
    except UsageError:
        raise
    except Exception as error:  # of a package that is not ours: whatever it is, the run is as it was
        raise UsageError(
            f"--to {target.kind}: {in_words(error)}", hint="The run is as it was; the same command sends what is missing."
        ) from error
    return tracker.where, follower.sent


def _patience(limit: float) -> Callable[[float], bool]:
    """A wait that ends after `limit` seconds in all."""
    deadline = time.monotonic() + limit

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return time.monotonic() > deadline

    return wait
