"""The measures of one text as a page, the repeated stretch marked in the text."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablation.report.loop_words import strong_words
from ablation.rollouts.text_measures import TextLoop, TextMeasures

AROUND = 200
"""Characters of the text that are shown before and after a loop."""


def text_page(found: TextMeasures, text: str, extracted: str | None) -> RenderableType:
    """`extracted` is what a grader reads as the answer, for instance `correct: 11`; None if there is no grader."""
    units = f"{found.unit}s"
    table = Table.grid(padding=(0, 2))
    closed = "closed" if found.closed else "never closed"
    table.add_row("thinking", f"{found.thinking_length:,} {units}, {closed}" if found.opened else "none")
    table.add_row("answer", f"{found.answer_length:,} {units}" if found.closed or not found.opened else "none")
    if extracted is not None:
        table.add_row("grade", extracted)
    table.add_row("periodic loop", _loop(found.loop, found.unit))
    seen = f": {100 * found.repeated_share:.1f}% of windows occurred before"
    if found.loops.novelty is not None:
        seen = f"; it is one if {strong_words(found.loops)}"
    table.add_row("strong loop", ("yes" if found.strong_loop else "no") + seen)
    table.add_row("CJK letters", f"{100 * found.cjk_share:.1f}% of the thinking's letters; {_visible(found)} in the answer")
    if found.loop is None:
        return table
    return Group(table, Text(), _marked(text, found.loop))


def text_json(found: TextMeasures, extracted: str | None) -> dict[str, Any]:
    """The same as data."""
    loop = found.loop
    return {
        "unit": found.unit,
        "thinking_length": found.thinking_length,
        "answer_length": found.answer_length,
        "opened": found.opened,
        "closed": found.closed,
        "loop": None if loop is None else {name: getattr(loop, name) for name in ("start", "end", "unit", "period", "repeats")},
        "repeated_share": found.repeated_share,
        "strong_loop": found.strong_loop,
        "looping": found.looping,
        "cjk_share": found.cjk_share,
        "answer_cjk": found.answer_cjk,
        "grade": extracted,
    }


def _loop(loop: TextLoop | None, unit: str) -> str:
    if loop is None:
        return "no"
    shown = loop.unit if len(loop.unit) <= 60 else f"{loop.unit[:57]}..."
    units = f"{loop.period} {unit}{'s' if loop.period > 1 else ''}"
    return f"{loop.repeats:.1f} times {shown!r} ({units}), from character {loop.start:,}"


def _visible(found: TextMeasures) -> str:
    return "visible" if found.answer_cjk else "none"


def _marked(text: str, loop: TextLoop) -> Text:
    """The stretch between brackets, with a little of what is around it; the middle of a long one is left out."""
    before, after = text[max(0, loop.start - AROUND) : loop.start], text[loop.end : loop.end + AROUND]
    stretch = text[loop.start : loop.end]
    if len(stretch) > 2 * AROUND:
        left = len(stretch) - 2 * AROUND
        stretch = f"{stretch[:AROUND]} [... {left:,} characters ...] {stretch[-AROUND:]}"
    page = Text("..." if loop.start > AROUND else "")
    page.append(before)
    page.append(f"⟦{stretch}⟧", style="reverse")
    page.append(after)
    return page.append("..." if loop.end + AROUND < len(text) else "")
