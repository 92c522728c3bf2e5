"""The report as plain data, before any format: sections, paragraphs, tables and figures, and where each number is from.

Texts are foreign until a renderer has escaped them. Numbers are written as `ablation verdict` prints them (`-7`, `0.74x
(0.69-0.79)`); a renderer may set them better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["", "good", "bad", "open"]


@dataclass(frozen=True)
class Trace:
    """Where a number is from, and the command that prints it again."""

    files: tuple[str, ...]
    """In the run folder; a pattern where there are several."""
    rows: str
    """Which rows of them, in words."""
    command: str
    """Prints the number, or the numbers that it is made of as `how` says."""
    how: str = ""

    def in_words(self) -> str:
        """One line without the command."""
        how = f"; {self.how}" if self.how else ""
        return f"{', '.join(self.files)}: {self.rows}{how}"


@dataclass(frozen=True)
class Cell:
    """One entry of a table, or a number in a sentence."""

    text: str
    trace: Trace | None = None
    number: bool = False
    """Signs, ranges and `x` in it may be set as such."""
    tone: Tone = ""


@dataclass(frozen=True)
class Code:
    """A command, a name or a digest: kept letter for letter."""

    text: str


@dataclass(frozen=True)
class Strong:
    text: str


@dataclass(frozen=True)
class Label:
    """A label with everything that stands beside it."""

    text: str
    tone: Tone


Inline = str | Code | Strong | Cell | Label
Parts = tuple[Inline, ...]


@dataclass(frozen=True)
class Paragraph:
    parts: Parts
    kind: Literal["plain", "lead", "warning", "small"] = "plain"


@dataclass(frozen=True)
class Command:
    """A line to be copied."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    rows: tuple[Parts, ...]


@dataclass(frozen=True)
class Facts:
    """Pairs of a term and what it is."""

    rows: tuple[tuple[str, Parts], ...]


@dataclass(frozen=True)
class Column:
    title: str
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    key: str
    """Name of its file, and its anchor."""
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    """Places of rows that begin a group."""
    latex: bool = True
    """Whether it is one of the tables that a paper would print."""

    def traced(self) -> Iterator[tuple[str, Cell]]:
        """(row and column in words, the cell) of each number with a trace."""
        first = ""
        for row in self.rows:
            first = row[0].text or first
            for column, cell in zip(self.columns, row, strict=True):
                if cell.trace is not None:
                    yield f"{first}, {' '.join(column.title.split())}", cell


@dataclass(frozen=True)
class Figure:
    key: str
    caption: str
    alternative: str
    """What it shows, for whoever does not see it."""
    data: Table
    svg: str | None = None
    """None: no figure could be drawn, see `Document.without_figures`."""
    png: bytes | None = None


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    blocks: Sequence[Block] = ()
    parts: Sequence[Section] = ()


Block = Paragraph | Command | Items | Facts | Table | Figure


@dataclass(frozen=True)
class Document:
    """A whole report."""

    kicker: str
    title: str
    question: str
    label: Label
    opening: Sequence[Block]
    sections: Sequence[Section]
    digest: str
    without_figures: str | None = None
    """Why there are no figures."""
    footer: Parts = field(default=())

    def blocks(self) -> Iterator[Block]:
        """Every block, in reading order."""
        yield from self.opening
        for section in self.sections:
            yield from _blocks(section)

    def tables(self) -> list[Table]:
        """Every table but the data behind figures."""
        return [block for block in self.blocks() if isinstance(block, Table)]

    def figures(self) -> list[Figure]:
        return [block for block in self.blocks() if isinstance(block, Figure)]

    def traces(self) -> list[tuple[str, Cell]]:
        """(place in words, cell) of every number that can be traced."""
        found = []
        for block in self.blocks():
            table = block.data if isinstance(block, Figure) else block
            if isinstance(table, Table):
                found += [(f"{table.key}: {where}", cell) for where, cell in table.traced()]
        return found


def _blocks(section: Section) -> Iterator[Block]:
    yield from section.blocks
    for part in section.parts:
        yield from _blocks(part)


def text(*parts: Inline, kind: Literal["plain", "lead", "warning", "small"] = "plain") -> Paragraph:
    """A paragraph."""
    return Paragraph(parts, kind)


def ticked(words: str) -> Parts:
    """A sentence of ours whose names stand between backquotes."""
    pieces = words.split("`")
    if len(pieces) % 2 == 0:  # one of them is no pair
        return (words,)
    return tuple(Code(piece) if place % 2 else piece for place, piece in enumerate(pieces) if piece)


def number(value: str, trace: Trace | None = None, tone: Tone = "") -> Cell:
    """A cell whose text is a number."""
    return Cell(value, trace, number=True, tone=tone)
