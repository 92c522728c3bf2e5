"""One rollout as a page for a terminal: numbers, thinking folded, its loops between brackets, the answer. Texts are a model's, so
nothing of them is obeyed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.plan.model import Loops
from ablation.report.loop_words import looping_words, strong_seen
from ablation.report.numbers import fixed
from ablation.report.safe import clean
from ablation.rollouts.one import One
from ablation.rollouts.repeated import longest

HEAD, TAIL, AROUND = 300, 200, 120
"""Characters of a folded text that are shown at its beginning, at its end, and on either side of where a loop begins and ends."""
SMALL = 80
"""Fewer characters than these are not folded away."""
SIDE_BY_SIDE = 110
"""Columns that two rollouts need beside each other."""
Mark = tuple[int, int, str, str, str]
"""First character, the one after the last, what opens and closes it, and its style."""
PERIODIC, STRONG = ("⟦", "⟧", "reverse"), ("⟪", "⟫", "underline")
LOW, LOWER = -1.0, -3.0
"""Nats: tokens below are shown in yellow and in red."""


def rollout_page(one: One, *, full: bool = False, tokens: bool = False, width: int = 80) -> RenderableType:
    """`full`: the whole thinking; `tokens`: each sampled token in the place of the texts."""
    parts: list[RenderableType] = [Text(clean(one.name), style="bold"), _facts(one)]
    if one.problem is not None:
        parts += [_heading("Problem"), _folded(one.problem.prompt, [], full)]
    if tokens:
        return Group(*parts, _heading("Tokens"), *_token_lines(one, width))
    return Group(*parts, *_texts(one, full))


def beside_page(one: One, other: One, *, full: bool = False, width: int = 80) -> RenderableType:
    """Two rollouts of one cell and index, side by side where there is room."""
    parts: list[RenderableType] = [Text(same_words(one, other)), Text()]
    if one.problem is not None:
        parts += [Text("Problem", style="bold"), _folded(one.problem.prompt, [], full), Text()]
    if np.array_equal(one.ids, other.ids):
        numbers = Table.grid(padding=(0, 2))
        for each in (one, other):
            numbers.add_row(Text(clean(each.name), style="bold"), f"logprob {_number(each.logprob)}")
        return Group(*parts, numbers, _facts(one), *_texts(one, full))
    pages = [Group(Text(clean(each.name), style="bold"), _facts(each), *_texts(each, full)) for each in (one, other)]
    if width < SIDE_BY_SIDE:
        return Group(*parts, pages[0], Text(), pages[1])
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(ratio=1)
    table.add_column(ratio=1)
    table.add_row(*pages)
    return Group(*parts, table)


def same_words(one: One, other: One) -> str:
    """What two rollouts share, in a sentence."""
    seeds = "one seed" if one.seed == other.seed else "different seeds"
    same = _common(one.ids, other.ids)
    if same == len(one.ids) == len(other.ids):
        return f"The same cell and index, {seeds}: the same to the last token."
    lengths = f"of {len(one.ids):,} and {len(other.ids):,}"
    return f"The same cell and index, {seeds}: the first {same:,} sampled tokens are the same ({lengths})."


def list_page(
    names: Sequence[str], rows: Iterable[dict[str, Any]], shown: int, total: int, of: int, loops: Loops
) -> RenderableType:
    """The rollouts of a stage: `shown` of the `total` that were asked for, of its `of`."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("rollout", overflow="fold")
    for name in ("tokens", "logprob"):
        table.add_column(name, justify="right")
    for name in ("grade", "ended", "loop"):
        table.add_column(name)
    for name, row in zip(names, rows, strict=True):
        table.add_row(
            Text(clean(name)),
            "?" if row["tokens"] is None else f"{row['tokens']:,}",
            _number(row["logprob"]),
            row["grade"],
            "cut" if row["truncated"] else "finished" if row["finished"] else "in thinking",
            "?" if row["loop"] is None else row["loop"],
        )
    some = f"{shown} of {total}" if shown < total else f"{total}"
    more = "; --all lists them" if shown < total else ""
    count = Text(f"{some} rollouts{'' if total == of else f' of the {of} of the stage'}{more}")
    return Group(table, Text(f"\n{looping_words(loops)}", style="dim"), count)


def _facts(one: One) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("grade", Text(clean(_grade(one))))
    ended = "cut at the cap" if one.truncated else "finished" if one.closed or not one.opened else "ended inside its thinking"
    table.add_row("ended", ended)
    if one.redacted:
        table.add_row("thinking", "not known: it was redacted where this was sampled, and so are its tokens and loops")
        table.add_row("tokens", f"{one.answer_tokens:,} answer")
    else:
        table.add_row("tokens", f"{len(one.ids):,}: {one.thinking_tokens:,} thinking, {one.answer_tokens:,} answer")
        table.add_row("logprob", f"{_number(one.logprob)} nats a thinking token" if one.thinking_tokens else "no thinking")
        table.add_row("loop", Text(clean(_loop(one))))
    table.add_row("seed", str(one.seed))
    return table


def _grade(one: One) -> str:
    gold = "" if one.problem is None or not one.problem.gold else f"; right is {one.problem.gold}"
    if one.grade is None:
        return ("no visible answer" if one.opened and not one.closed else "not graded") + gold
    said = one.grade.status.replace("_", " ") + (f" ({one.grade.reason})" if one.grade.reason else "")
    return said + ("" if one.grade.extracted is None else f": {one.grade.extracted}") + ("" if said == "correct" else gold)


def _loop(one: One) -> str:
    seen = strong_seen(one.loops, one.repeated_share, one.strong)
    strong = f"strong: {seen}{_unseen(one)}" if one.strong else ""
    if one.loop is None:
        return strong or f"none ({seen})"
    loop = one.loop
    stretch = f"tokens {loop.start:,} to {loop.start + loop.length - 1:,}"
    words = f"periodic: {loop.length / loop.period:.1f} times {_tokens(loop.period)}, {stretch}"
    if loop.characters is None:
        words += ", not to be seen in the text without the tokenizer"
    elif loop.by == "characters":
        words += ", marked by its characters"
    return f"{words} of the thinking{f'; {strong}' if strong else ''}"


def _texts(one: One, full: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if one.opened and not one.redacted:
        closed = "" if one.closed else ", never closed"
        parts += [_heading(f"Thinking ({_tokens(one.thinking_tokens)}{closed})"), _folded(one.thinking_text, _marks(one), full)]
    if one.closed or not one.opened:
        parts += [_heading(f"Answer ({_tokens(one.answer_tokens)})"), _folded(one.answer_text, [], True)]
    return parts


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _unseen(one: One) -> str:
    seen = one.repeats is not None and one.repeats.characters is not None
    outside = " outside the periodic one" if one.loop is not None else ""
    return f", each such stretch{outside} in ⟪ ⟫" if seen else ", not to be seen in the text without the tokenizer"


def _marks(one: One) -> list[Mark]:
    """The loops in the thinking's text, in order; a repeated stretch is left out where the periodic loop is."""
    periodic = one.loop.characters if one.loop is not None else None
    marks: list[Mark] = [] if periodic is None else [(*periodic, *PERIODIC)]
    begin, end = periodic or (0, 0)
    for first, after in (one.repeats.characters or []) if one.repeats is not None else []:
        rest = [(first, min(after, begin)), (max(first, end), after)] if periodic else [(first, after)]
        marks += [(*span, *STRONG) for span in rest if span[0] < span[1]]
    return sorted(marks)


def _folded(text: str, marks: Sequence[Mark], full: bool) -> RenderableType:
    """The text with its loops between brackets; what is between its ends and those of the longest loop is left out unless `full`.

    It is indented, so that no line of it can pass for one of the page.
    """
    spans = [mark[:2] for mark in marks if mark[2:] == PERIODIC] or [mark[:2] for mark in marks]
    kept = [(0, len(text))] if full else _kept(len(text), longest(spans))
    page, last = Text(overflow="fold"), 0
    for begin, end in kept:
        if begin > last:
            page.append(f" [... {begin - last:,} characters, --full shows them ...] ", style="dim")
        at = begin
        for first, after, opens, closes, style in marks:
            if after <= begin or first >= end:
                continue
            page.append(clean(text[at : max(at, first)]))
            page.append(opens if first >= begin else "")
            page.append(clean(text[max(at, first) : min(after, end)]), style=style)
            page.append(closes if after <= end else "")
            at = min(after, end)
        page.append(clean(text[at:end]))
        last = end
    return Padding(page, (0, 0, 0, 2))


def _kept(length: int, span: tuple[int, int] | None) -> list[tuple[int, int]]:
    """The stretches of a text of `length` characters that are shown, in order; small gaps are shown, too."""
    wanted = [(0, HEAD), (length - TAIL, length)]
    wanted += [(place - AROUND, place + AROUND) for place in span or ()]
    kept: list[tuple[int, int]] = []
    for begin, end in sorted((max(0, begin), min(length, end)) for begin, end in wanted):
        if kept and begin - kept[-1][1] < SMALL:
            kept[-1] = (kept[-1][0], max(kept[-1][1], end))
        else:
            kept.append((begin, end))
    return kept


def _token_lines(one: One, width: int) -> list[Text]:
    lines = [Text(f"{'place':>6} {'id':>7} {'logprob':>8} {'entropy':>8}  {'part':<8}  token", style="bold")]
    room = max(10, width - 44)
    loop = range(0)
    if one.loop is not None:
        loop = range(one.start + one.loop.start, one.start + one.loop.start + one.loop.length)
    again = {one.start + at for span in (one.repeats.tokens if one.repeats is not None else []) for at in range(*span)}
    for at, (id_, logprob, entropy) in enumerate(
        zip(one.ids.tolist(), one.logprobs.tolist(), one.entropies.tolist(), strict=True)
    ):
        part = "thinking" if one.start <= at < one.start + one.thinking_tokens else "tag" if at < one.start else "answer"
        if one.closed and at == one.start + one.thinking_tokens:
            part = "tag"
        part = "loop" if at in loop else "repeated" if at in again else part
        text = "" if one.pieces is None else repr(clean(one.pieces[at]))[1:-1]
        text = text if len(text) <= room else f"{text[: room - 1]}…"
        style = "" if not logprob < LOW else "yellow" if logprob >= LOWER else "red"
        line = Text(f"{at:>6} {id_:>7} ").append(f"{_number(logprob):>8}", style=style)
        lines.append(line.append(f" {_number(entropy):>8}  {part:<8}  ").append(text, style=style))
    return lines


def _number(value: float | None) -> str:
    return "none" if value is None or not np.isfinite(value) else fixed(value, 3)


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """How many tokens from the first on are the same."""
    return sum(1 for _ in takewhile(bool, (one[: len(other)] == other[: len(one)]).tolist()))
