"""How a run goes, as a page that is drawn again while it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablation.report.numbers import fixed
from ablation.report.safe import clean

BAR = 8
"""Columns of a bar of updates."""
NARROW = 74
"""Columns that a table with bars needs."""


@dataclass(frozen=True)
class ArmLook:
    """One arm in one family."""

    series: str
    done: int
    updates: int
    readout: str
    stopped: bool
    newest: str | None = None
    """What `values` are of: `update-3`, `readout`."""
    values: Mapping[str, float] = field(default_factory=dict)
    """By the names that trackers are told."""


@dataclass(frozen=True)
class Look:
    """A run at one moment."""

    name: str
    digest: str
    root: str
    runner: str | None
    began: str | None
    sweeps: Mapping[str, str]
    arms: Sequence[ArmLook]
    sampling: Sequence[tuple[str, int, int | None]]
    """(stage, rollouts that are on disk, rollouts that it will have)."""
    events: Sequence[Mapping[str, Any]]
    """Of the journal, the oldest first."""
    following: str
    """The next command."""
    note: str | None = None
    """What could not be read."""


def watch_page(look: Look, height: int = 50, width: int = 80) -> RenderableType:
    """The page, as high as `height` lines allow: the newest events fill what the rest leaves. A narrow one has no bars."""
    head = Table.grid(padding=(0, 2))
    head.add_column(no_wrap=True)
    head.add_column(overflow="fold")
    head.add_row("plan", Text(clean(f"{look.name}, digest {look.digest[:12]}")))
    head.add_row("run", Text(clean(look.root)))
    began = f"; began {look.began[:16].replace('T', ' ')} UTC" if look.began else "; not begun"
    head.add_row("runner", Text(clean(f"{look.runner or 'none at work'}{began}")))
    sweeps = ", ".join(f"{family} {there}" for family, there in look.sweeps.items())
    head.add_row("sweeps", Text(clean(sweeps)))
    parts: list[RenderableType] = [head, Text()]
    if look.note:
        parts += [Text(clean(look.note), style="red"), Text()]
    parts.append(_arms(look.arms, bars=width >= NARROW))
    parts.append(Text("of the newest update, or of the readout on all cells", style="dim"))
    now = Table.grid(padding=(0, 2))
    now.add_column(no_wrap=True, min_width=6)
    now.add_column(overflow="fold")
    for one in look.sampling:
        now.add_row("now", Text(clean(_sampling(*one))))
    working = _working(look.arms)
    if working is not None and (margins := _margins(working)):
        now.add_row("stop", Text(clean(margins)))
    now.add_row("next", Text(clean(look.following)))
    used = 11 + len(look.arms) + now.row_count + (2 if look.note else 0)
    events = [_event(event) for event in reversed(look.events)][: max(3, height - used)]  # a low terminal cuts off the oldest
    return Group(*parts, Text(), now, Text(), *(Text(clean(line), style="dim") for line in events))


def event_line(event: Mapping[str, Any]) -> str:
    """An event of the journal in a line."""
    return clean(_event(event))


def bar(done: int, of: int, width: int = BAR) -> str:
    """`done` of `of` as blocks."""
    full = width * min(done, of) // of if of else 0
    return "█" * full + "░" * (width - full)


def _arms(arms: Sequence[ArmLook], *, bars: bool) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("arm", overflow="fold", min_width=min(13, max((len(arm.series) for arm in arms), default=0)))
    table.add_column("updates", no_wrap=True)
    table.add_column("readout", no_wrap=True)
    shares = {"correct": "correct", "clean": "clean", "trunc.": "truncated", "loop.": "looping"}
    if not bars:
        del shares["clean"]
    for name in (*shares, "logprob"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm in arms:
        group = "cells/" if arm.newest == "readout" or (arm.newest or "").startswith("check") else "update/"
        found = [arm.values.get(f"{group}{name}_share") for name in shares.values()]
        logprob = arm.values.get(f"{group}logprob")
        table.add_row(
            Text(clean(arm.series)),
            f"{bar(arm.done, arm.updates)} {arm.done}/{arm.updates}" if bars else f"{arm.done}/{arm.updates}",
            "stopped" if arm.stopped else arm.readout,
            *("" if share is None else f"{100 * share:.0f}%" for share in found),
            "" if logprob is None else fixed(logprob, 3),
            style="bold" if 0 < arm.done < arm.updates and not arm.stopped else "",
        )
    return table


def _working(arms: Sequence[ArmLook]) -> ArmLook | None:
    """The arm whose updates have begun and not ended."""
    return next((arm for arm in arms if 0 < arm.done < arm.updates and not arm.stopped), None)


def _margins(arm: ArmLook) -> str:
    """How far the newest update is from each stop rule."""
    found = {name.partition("/")[2]: value for name, value in arm.values.items() if name.startswith("stop/")}
    words = [
        f"{name} {abs(value):.3g} left" if value >= 0 else f"{name} BEYOND ITS LIMIT" for name, value in sorted(found.items())
    ]
    return f"{arm.series}: {', '.join(words)}" if words else ""


def _sampling(stage: str, rollouts: int, wanted: int | None) -> str:
    if not wanted:
        return f"{stage}: {rollouts:,} rollouts"
    return f"{bar(rollouts, wanted, 10)} {stage}: {rollouts:,} of {wanted:,} rollouts"


def _event(event: Mapping[str, Any]) -> str:
    where = str(event.get("stage") or event.get("arm") or event.get("set") or "")
    if event.get("arm") and event.get("update") is not None:
        where = f"{event['arm']}/update-{event['update']}"
    more = [f"{event['rollouts']:,} rollouts"] if isinstance(event.get("rollouts"), int) else []
    seconds, tokens = event.get("seconds"), event.get("tokens")
    if isinstance(seconds, int | float):
        more.append(f"{seconds:.1f} s")
        if isinstance(tokens, int) and seconds > 0.2:
            more.append(f"{tokens / seconds:,.0f} tok/s")
    if event.get("outcome") not in (None, "stepped"):
        more.append(str(event["outcome"]))
    name = str(event["event"]).replace("_", " ")
    return f"{str(event['time'])[11:19]}  {name} {where}{': ' if more else ''}{', '.join(more)}".rstrip()
