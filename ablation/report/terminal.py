"""Pages for a terminal: no trailing blanks, and nothing in foreign text that a terminal would obey or hide."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

WIDEST = 100
"""Columns: longer lines are hard to read."""
UNSAFE = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x00, 0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}
"""C0 and C1 control characters: escape sequences begin with one of them."""
UNSAFE |= {code: "\N{REPLACEMENT CHARACTER}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Direction marks: they make text read in another order than it is written."""


def clean(value: Any) -> Any:
    """`value` with every text in it (in lists, tuples and mappings, too) made safe to show."""
    if isinstance(value, str):
        return value.translate(UNSAFE)
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, (list, tuple)) else value


class Page:
    """`content` as it is printed by `print_page`."""

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.content, options, pad=False):
            yield from _without_trailing_blanks(Segment(text.translate(UNSAFE), style) for text, style, _ in line)
            yield Segment.line()


def print_page(content: RenderableType) -> None:
    """Print to stdout: as wide as the terminal up to `WIDEST`, 80 if it is none; no colours where `NO_COLOR` asks for that."""
    console = Console(soft_wrap=False, highlight=False)
    console.print(Page(content), end="", width=min(console.width, WIDEST) if sys.stdout.isatty() else 80)


def _without_trailing_blanks(line: Iterable[Segment]) -> list[Segment]:
    segments = list(line)
    while segments:
        text, style, _ = segments.pop()
        if kept := text.rstrip(" "):
            return [*segments, Segment(kept, style)]
    return []
