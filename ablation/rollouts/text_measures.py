"""The measures of one text, as a rollout's text would be measured: thinking and answer, loops with the repeated unit, CJK.

In a run, thinking is split by token ids. A text has none, so here the tags are searched for as text, and its units are the
tokens of a tokenizer, or characters where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablation.plan.model import Loops
from ablation.rollouts.cjk import cjk_share, visible_cjk
from ablation.rollouts.loops import find_loops

Spans = list[tuple[int, int]]
"""Character positions [start, end) of each unit of a text, in order."""

CHARACTER_GRAM = 24
"""Windows of the strong loop in characters: a dozen of them say nothing about repeated sentences."""


@dataclass(frozen=True)
class TextLoop:
    """The longest periodic loop of a text."""

    start: int
    """First character of the stretch, from the start of the whole text."""
    end: int
    """Character after its last one."""
    unit: str
    """The repeated text."""
    period: int
    """Units (tokens or characters) of the repeated text."""
    repeats: float
    """Times that it occurs, a cut one counted in part."""


@dataclass(frozen=True)
class TextMeasures:
    """What a text is measured as."""

    unit: str
    """`token` or `character`."""
    thinking: str
    answer: str
    opened: bool
    closed: bool
    thinking_length: int
    """In units."""
    answer_length: int
    """In units."""
    loop: TextLoop | None
    repeated_share: float
    """Of windows of the thinking."""
    strong_loop: bool
    loops: Loops
    """The settings by which both kinds were looked for."""
    cjk_share: float
    """CJK letters among the letters of the thinking."""
    answer_cjk: bool
    """The visible answer has a CJK letter."""

    @property
    def looping(self) -> bool:
        return self.loop is not None or self.strong_loop


def measure_text(
    text: str, loops: Loops, *, tags: tuple[str, str], opened: bool = False, tokenize: Callable[[str], Spans] | None = None
) -> TextMeasures:
    """Measure `text`. `opened`: it begins inside the thinking, as after a prompt that opens it."""
    start, stop, answer_start, opened, closed = _split(text, tags, opened)
    thinking, answer = text[start:stop], text[answer_start:]
    unit = "character" if tokenize is None else "token"
    spans: Sequence[tuple[int, int]] = _Characters(len(thinking)) if tokenize is None else tokenize(thinking)
    if tokenize is None:
        loops = loops.model_copy(update={"gram": max(loops.gram, CHARACTER_GRAM)})
        ids = np.frombuffer(thinking.encode("utf-32-le", "surrogatepass"), dtype="<i4")
    else:
        pieces = [thinking[begin:end] for begin, end in spans]
        numbers = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
        ids = np.array([numbers[piece] for piece in pieces], dtype=np.int32)
    found = find_loops(ids, np.array([0, len(ids)]), loops, [thinking])
    loop = None
    if found.periodic[0]:
        first, period, length = int(found.start[0]), int(found.period[0]), int(found.length[0])
        loop = TextLoop(
            start=start + spans[first][0],
            end=start + spans[first + length - 1][1],
            unit=thinking[spans[first][0] : spans[first + period - 1][1]],
            period=period,
            repeats=length / period,
        )
    return TextMeasures(
        unit=unit,
        thinking=thinking,
        answer=answer,
        opened=opened,
        closed=closed,
        thinking_length=len(spans),
        answer_length=len(answer if tokenize is None else tokenize(answer)),
        loop=loop,
        repeated_share=float(found.repeated_share[0]),
        strong_loop=bool(found.strong[0]),
        loops=loops,
        cjk_share=float(cjk_share([thinking])[0]),
        answer_cjk=bool(visible_cjk([answer])[0]),
    )


def _split(text: str, tags: tuple[str, str], opened: bool) -> tuple[int, int, int, bool, bool]:
    """(start and stop of the thinking, start of the answer, opened, closed): the rule of `rollouts.thinking`, on text."""
    opening, closing = tags
    start = 0
    if not opened:
        found = text.find(opening)
        if found < 0:
            return 0, 0, 0, False, False
        start = found + len(opening)
    stop = text.find(closing, start)
    if stop < 0:
        return start, len(text), len(text), True, False
    return start, stop, stop + len(closing), True, True


class _Characters(Sequence[tuple[int, int]]):
    """The spans of single characters, of which there may be millions."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        return place, place + 1
