"""Which run folder a command reads, and which locked plan it is of: shared by the commands that judge a finished run."""

from pathlib import Path
from shlex import quote

from ablation.study.run_folder import find_run, refuse_odd_files

__all__ = ["find_run", "printed_options", "refuse_odd_files"]


def printed_options(options: str | None, run: Path | None) -> str:
    """For a printed command: the options that `find_run` gave, or the run folder where that was named alone."""
    return f" --run {quote(str(run))}" if options is None and run is not None else options or ""
