"""Lines of text as wide as the terminal: cut between words, what follows below the text of its line. A pipe gets them whole."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap

import typer

WIDEST = 100
"""Columns: longer lines are hard to read."""
DEEPEST = 20
"""Columns that what follows is moved in, at most."""
_LEAD = re.compile(r"\s*(?:[-·] )?(?:\S+(?: \S+)?\s{2,})?")
_COMMAND = re.compile(r"^(next\b|Next:|\s*ablation )")


def echo(text: str, *, err: bool = False) -> None:
    """Print `text`. On a terminal lines are cut between words, but not those with a command that is there to be copied."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None and stream.isatty():
        text = fitted(text, min(shutil.get_terminal_size().columns, WIDEST))
    typer.echo(text, err=err)


def fitted(text: str, width: int) -> str:
    """Every line of `text` in lines of at most `width` columns, as far as paths and digests allow."""
    return "\n".join(_line(line, width) for line in text.split("\n"))


def _line(line: str, width: int) -> str:
    if len(line) <= width or _COMMAND.match(line):
        return line
    lead = _LEAD.match(line)
    indent = min(len(lead.group()) if lead else 0, DEEPEST) or 2
    kept = line[: len(line) - len(line.lstrip())]
    found = textwrap.wrap(
        line.lstrip(),
        max(width, indent + 20),
        initial_indent=kept,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(found)
