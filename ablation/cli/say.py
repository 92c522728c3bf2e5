"""Lines for people that may hold text of others: of a problem file, a rollout, a mark."""

from __future__ import annotations

from ablation.cli.fit import echo
from ablation.report.safe import clean


def say(text: str, err: bool = False) -> None:
    """Print one line, made safe for a terminal; a line end in it becomes a blank."""
    echo(clean(" ".join(text.splitlines())), err=err)
