"""Progress of long work, on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ablation.study.sampler import Reporter

LINE_EVERY = 15.0
"""Seconds between two plain lines within a stage."""


@contextmanager
def make_reporter() -> Iterator[Reporter]:
    """The reporter that fits stderr."""
    if not sys.stderr.isatty():
        yield PlainReporter()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ablation.report.terminal import plain_console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]}", markup=False),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=plain_console(stderr=True), transient=True) as progress:
        yield TerminalReporter(progress)


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:,.0f} tok/s" if seconds > 0.2 and tokens else ""


class PlainReporter:
    """Lines for a log file."""

    def stage(self, title: str, rollouts: int, done: int, cap: int) -> None:
        self.title, self.rollouts, self.already = title, rollouts, done
        self.started = self.spoke = time.monotonic()
        if done:
            self.say(f"{title}: {done} of {rollouts} rollouts are there already")

    def progress(self, done: int, tokens: int) -> None:
        now = time.monotonic()
        if now - self.spoke >= LINE_EVERY:
            self.spoke = now
            fresh, elapsed = done - self.already, now - self.started
            left = f", about {elapsed / fresh * (self.rollouts - done):.0f} s left" if fresh > 0 else ""
            self.say(f"{self.title}: {done} of {self.rollouts} rollouts, {_rate(tokens, elapsed)}{left}")

    def stage_done(self, seconds: float, tokens: int) -> None:
        self.say(
            f"{self.title}: {self.rollouts} rollouts, {tokens:,} tokens in {seconds:.1f} s {_rate(tokens, seconds)}".rstrip()
        )

    def say(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)


class TerminalReporter:
    """One bar for the stage at work; a line for each finished one."""

    def __init__(self, progress) -> None:
        self.bars, self.task = progress, None

    def stage(self, title: str, rollouts: int, done: int, cap: int) -> None:
        self.title, self.rollouts, self.started = title, rollouts, time.monotonic()
        self.task = self.bars.add_task(title, total=rollouts, completed=done, tokens="")

    def progress(self, done: int, tokens: int) -> None:
        rate = _rate(tokens, time.monotonic() - self.started)
        self.bars.update(self.task, completed=done, tokens=f"{tokens:,} tok {rate}")

    def stage_done(self, seconds: float, tokens: int) -> None:
        self.bars.remove_task(self.task)
        self.say(
            f"{self.title}: {self.rollouts} rollouts, {tokens:,} tokens in {seconds:.1f} s {_rate(tokens, seconds)}".rstrip()
        )

    def say(self, message: str) -> None:
        self.bars.console.print(message, markup=False, highlight=False)
