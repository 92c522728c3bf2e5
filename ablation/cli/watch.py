"""`ablation status --watch`: a run as it goes on, on a terminal; elsewhere its events as lines. It only reads."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ablation.plan.lock import LockedPlan
    from ablation.report.watch_page import Look

EVERY = 1.0
"""Seconds between two looks; ten times as long as a look takes, where that is more."""
PAUSE = 0.1
"""Seconds until a terminal that was made larger or smaller is drawn anew."""
WIDEST = 100


class Watcher:
    """Looks at one run again and again; what was read once is not read again."""

    def __init__(self, locked: LockedPlan, root: Path, options: str) -> None:
        from ablation.trackers.points import open_source

        self.locked, self.root, self._options = locked, root, options
        self.source = open_source(locked.plan, root)
        self._told: set[tuple[str, str]] = set()
        self._newest: dict[str, tuple[str, dict[str, float]]] = {}
        self._following = ""

    def look(self) -> Look:
        """The run now. What cannot be read is a note: a runner may be in the middle of writing it."""
        from ablation.errors import AblationError
        from ablation.report.watch_page import ArmLook, Look
        from ablation.study.deviations import known_deviations
        from ablation.study.next_steps import next_command
        from ablation.study.runlock import runner_at_work
        from ablation.study.state import RunState, run_state

        note, state = None, RunState(self.root, {}, [])
        try:
            self.source.events.read()
            for point in self.source.points(self._told):
                self._told.add((point.series, point.name))
                if point.name != "start":
                    self._newest[point.series] = (point.name, point.values)
            deviations = known_deviations(self.locked, self.root)
            state = run_state(self.locked.plan, self.root, deviations)
            self._following = f"{next_command(self.locked, self.root, deviations, state)}{self._options}"
        except (AblationError, OSError, ValueError) as error:
            note = f"not to be read now: {' '.join(error.lines()) if isinstance(error, AblationError) else error}"
        told = Counter(series for series, name in self._told if name.startswith("update-"))
        arms = []
        for arm in state.arms:
            series = f"{arm.family}/{arm.arm}"
            newest, values = self._newest.get(series, (None, {}))
            # A record may be kept without its checkpoints, by which the state counts.
            done = max(arm.updates_done, min(told[series], arm.updates))
            arms.append(ArmLook(series, done, arm.updates, arm.readout, arm.stopped, newest, values))
        for one in state.extensions:
            if one.updates_done > self.locked.plan.training.updates:
                arms.append(ArmLook(f"{one.family}/{one.arm} ext.", one.updates_done, one.updates, "", one.stopped))
        return Look(
            self.locked.plan.name,
            self.locked.digest,
            str(self.root),
            runner_at_work(self.root),
            self.source.events.began,
            state.sweeps,
            arms,
            [self._sampling(stage, rollouts) for stage, rollouts in self._begun().items()],
            list(self.source.events.recent),
            self._following,
            note,
        )

    def _begun(self) -> dict[str, int]:
        """Stages that are not complete, with the rollouts of their parts and of those that ended since."""
        from ablation.rollouts.folder import inflight_folder

        found = dict(self.source.events.parts)
        for log in self.root.glob(f"**/{inflight_folder(Path('x')).name}/*"):
            stage = log.parent.parent.relative_to(self.root).as_posix()
            found[stage] = found.get(stage, 0) + max(0, log.read_bytes().count(b"\n") - 1)
        return found

    def _sampling(self, stage: str, rollouts: int) -> tuple[str, int, int | None]:
        from ablation.study.schedule import cells_of_update

        plan, (family, _, kind) = self.locked.plan, ([*stage.split("/"), "", ""])[:3]
        if family not in plan.families:
            return stage, rollouts, None
        if kind.startswith("update-"):
            cells = len(cells_of_update(plan, family, int(kind.removeprefix("update-"))))
            return stage, rollouts, cells * plan.training.rollouts_per_cell
        return stage, rollouts, plan.sweep_rollouts


def watch(make: Callable[[], Watcher], print_status: Callable[[], None]) -> None:
    """Show the run until Ctrl-C, at any moment, which is no error.

    Where stdout is no terminal: its status, then events as lines while a runner is at work.
    """
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        from ablation.report.terminal import plain_console

        console = plain_console()
        watcher = make()
        if console.is_terminal and not console.is_dumb_terminal:
            _on_terminal(watcher, console)
        else:
            _as_lines(watcher, print_status)
    except KeyboardInterrupt:
        return  # that is how one stops watching
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminated(number: int, frame: object) -> None:
    raise SystemExit(128 + number)  # the terminal is put back on the way out


def _on_terminal(watcher: Watcher, console: Any) -> None:
    from rich.live import Live

    from ablation.report.terminal import Page
    from ablation.report.watch_page import watch_page

    look, shown = watcher.look(), None
    try:
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            due = 0.0
            while True:
                if time.monotonic() >= due:
                    started = time.monotonic()
                    look = watcher.look()
                    due = started + max(EVERY, 10 * (time.monotonic() - started))
                    shown = None
                if shown != console.size:
                    shown = console.size
                    width = min(shown.width, WIDEST)
                    live.update(_Narrow(Page(watch_page(look, shown.height, width)), width), refresh=True)
                time.sleep(PAUSE)
    finally:  # the last look stays on the screen
        width = min(console.width, WIDEST)
        console.print(Page(watch_page(look, 24, width)), end="", width=width)


class _Narrow:
    """`content` at most `width` columns wide."""

    def __init__(self, content: Any, width: int) -> None:
        self.content, self.width = content, width

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield from console.render(self.content, options.update_width(min(self.width, options.max_width)))


def _as_lines(watcher: Watcher, print_status: Callable[[], None]) -> None:
    from ablation.report.watch_page import event_line

    print_status()
    watcher.source.events.read()
    seen = watcher.source.events.count
    while True:
        at_work = watcher.look().runner is not None
        events = watcher.source.events
        for event in list(events.recent)[-(events.count - seen) :] if events.count > seen else []:
            typer.echo(event_line(event))
        seen = events.count
        if not at_work:
            return
        time.sleep(EVERY)
