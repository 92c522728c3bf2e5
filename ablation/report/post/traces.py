"""Commands that print a number of the report again, with the place of the number in what they print (RFC 6901)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ablation.report.post.document import Trace

SWEEP, READOUT = "start/sweep", "readout"


@dataclass(frozen=True)
class Traces:
    """Makes traces of one run, or of one measures file."""

    run: str | None
    """The run folder as the commands name it; None for reported figures."""
    measures: str | None = None
    plan: str | None = None

    def command(self, what: str, *places: str) -> str:
        """`what`: `verdict`, `audit weights` or `report`."""
        at = " ".join(f"--at {shlex.quote(place)}" for place in places)
        if self.run is not None:
            of = shlex.quote(self.run) if what == "report" else f"--run {shlex.quote(self.run)}"
        else:
            of = f"--plan {shlex.quote(self.plan or '')} --measures {shlex.quote(self.measures or '')}"
        return f"ablation {what} {of}{f' {at}' if at else ''}"

    def verdict(self, places: Sequence[str], files: Sequence[str], rows: str, how: str = "") -> Trace:
        """A number that `ablation verdict` computes; reported figures are all from the measures file."""
        if self.measures is not None:
            files, rows = (Path(self.measures).name,), "as reported"
        return Trace(tuple(files), rows, self.command("verdict", *places), how)

    def audit(self, place: str, files: Sequence[str], rows: str) -> Trace:
        return Trace(tuple(files), rows, self.command("audit weights", place))

    def report(self, place: str, files: Sequence[str], rows: str, how: str = "") -> Trace:
        """A number that only the report has."""
        return Trace(tuple(files), rows, self.command("report", place), how)


def pointer(*names: str | int) -> str:
    """`/arms/0/measures/clean`; `/` in a name becomes `~1`."""
    return "".join("/" + str(name).replace("~", "~0").replace("/", "~1") for name in names)


def parts_of(stage: str) -> str:
    """The rollouts of a stage folder."""
    return f"{stage}/part-*.parquet"
