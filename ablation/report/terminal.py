"""Pages for a terminal: no trailing blanks, and nothing in foreign text that a terminal would obey or hide."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from ablation.report.safe import clean

__all__ = ["Page", "clean", "plain_console", "print_page", "print_wide_page"]

WIDEST = 100
"""Columns: longer lines are hard to read."""
WIDEST_BESIDE = 200
"""Columns of two texts beside each other."""


class Page:
    """`content` as it is printed by `print_page`."""

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.content, options, pad=False):
            yield from _without_trailing_blanks(Segment(clean(text), style) for text, style, _ in line)
            yield Segment.line()


def plain_console(**options: Any) -> Console:
    """A console that takes every text as it is: no markup and no emoji codes. All pages are printed by one of these."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def print_page(content: RenderableType) -> None:
    """Print to stdout: as wide as the terminal up to `WIDEST`, 80 if it is none; no colours where `NO_COLOR` asks for that."""
    console = plain_console()
    console.print(Page(content), end="", width=min(console.width, WIDEST) if sys.stdout.isatty() else 80)


def print_wide_page(page: Callable[[int], RenderableType]) -> None:
    """Print what `page` makes of a width to stdout: as wide as the terminal up to `WIDEST_BESIDE`, 80 if it is none."""
    console = plain_console()
    width = min(console.width, WIDEST_BESIDE) if sys.stdout.isatty() else 80
    content = page(width)
    console.print(Page(content), end="", width=width)


def _without_trailing_blanks(line: Iterable[Segment]) -> list[Segment]:
    segments = list(line)
    while segments:
        text, style, _ = segments.pop()
        if kept := text.rstrip(" "):
            return [*segments, Segment(kept, style)]
    return []
