"""How a person names one rollout of a run: `FAMILY/ARM/STAGE/PROBLEM@EFFORT#INDEX`, with the stage's folder in front."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablation.errors import UsageError
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.stage import Stage

FORM = "FAMILY/ARM/STAGE/PROBLEM@EFFORT#INDEX"
_NUMBERED = re.compile(r"/(update|check)/(\d+)(?=/|$)")
SHOWN = 8
"""Names in a message."""


@dataclass(frozen=True)
class Address:
    """A stage of a run, and what is named in it: nothing, or a rollout."""

    stage: str
    """The stage's folder below that of the run, for instance `main/N/update-3` or `evaluations/held-out/N@5/subject`."""
    rest: str
    """`PROBLEM@EFFORT#INDEX`, or as much of it as was given."""


def stages_of(root: Path) -> list[str]:
    """Every complete stage of the run in `root`, by name."""
    return [path.parent.relative_to(root).as_posix() for path in RunFolder(root).stage_files()]


def parse_address(text: str, root: Path) -> Address:
    """What `text` names in the run. `update/3` is `update-3`, and `evaluations/` may be left out.

    Raises `UsageError` that says what there is where the stage is not one of the run's.
    """
    wanted = _NUMBERED.sub(r"/\1-\2", text.strip().strip("/"))
    known = stages_of(root)
    if not known:
        raise UsageError(f"{root}: no stage of it is complete yet", hint="`ablation status` shows how far it is.")
    for stage in sorted(known, key=len, reverse=True):
        for name in (stage, stage.removeprefix("evaluations/")):
            if wanted == name or wanted.startswith(f"{name}/"):
                return Address(stage, wanted[len(name) + 1 :])
    named = re.sub(r"/[^/]*[@#][^/]*#?[^/]*$", "", wanted) if "#" in wanted.rpartition("/")[2] else wanted
    shown = [stage.removeprefix("evaluations/") for stage in known]
    raise UsageError(f"there is no stage `{named}` in {root}", hint=f"{_meant(named, shown, 'Stages')} An address is {FORM}.")


def find_row(stage: Stage, address: Address, root: Path) -> int:
    """The row of the rollout. Raises `UsageError` that says which part of the name is wrong, and what there is."""
    name = re.sub(r"\s*#\s*", "#", address.rest)
    cell, hash_, number = name.rpartition("#")
    example = stage.name(0).replace(" #", "#")
    if not hash_ or not number.isdecimal():
        raise UsageError(
            f"`{address.rest}` does not end with #INDEX, the number of the rollout in its cell",
            hint=f"For instance {address.stage}/{example}.",
        )
    problem, at, effort = cell.rpartition("@")
    if not at:
        raise UsageError(f"`{cell}` has no @EFFORT", hint=f"For instance {address.stage}/{example}.")
    if problem not in stage.problem.values:
        raise UsageError(
            f"{address.stage}: there is no problem `{problem}`", hint=_meant(problem, stage.problem.values, "Problems there")
        )
    rows = np.array([one == problem for one in stage.problem.values])[stage.problem.codes]
    efforts = sorted({stage.effort[row] for row in np.flatnonzero(rows)})
    if effort not in efforts:
        raise UsageError(
            f"{address.stage}: {problem} was not sampled at effort `{effort}`", hint=f"It was at: {', '.join(efforts)}."
        )
    rows &= np.array([one == effort for one in stage.effort.values])[stage.effort.codes]
    found = np.flatnonzero(rows & (stage.index == int(number)))
    if not len(found):
        most = int(stage.index[rows].max())
        raise UsageError(f"{address.stage}: {cell} has no rollout #{number}", hint=f"It has {int(rows.sum())}: #0 to #{most}.")
    return int(found[0])


def full_name(stage: str, row: Stage, at: int) -> str:
    """The address of a row, as it is printed and can be typed."""
    return f"{stage}/{row.name(at).replace(' #', '#')}"


def beside(address: Address, root: Path, arm: str) -> Address:
    """The same place of another arm. Of the arm `start` it is the family's sweep; of an evaluation `start` is the reference.

    Raises `UsageError` if there is none.
    """
    parts = address.stage.split("/")
    known = stages_of(root)
    if parts[0] == "evaluations":
        options = [[*parts[:-1], "reference" if arm == "start" else "subject"], [*parts[:2], arm, parts[3]]]
    elif arm == "start":
        options = [[parts[0], "start", "sweep"]]
    else:
        stage = "readout" if parts[2] == "sweep" else parts[2]
        options = [[parts[0], arm, stage]]
    for option in options:
        if "/".join(option) in known and "/".join(option) != address.stage:
            return Address("/".join(option), address.rest)
    there = sorted({stage.split("/")[1] for stage in known if stage.split("/")[0] == parts[0] and stage != address.stage})
    raise UsageError(f"--beside {arm}: there is no stage {'/'.join(options[-1])}", hint=_meant(arm, there, "There are"))


def _meant(name: str, known: Iterable[str], what: str) -> str:
    """`Did you mean a or b?`, or what there is."""
    everything = list(known)
    if close := difflib.get_close_matches(name, everything, n=3, cutoff=0.6):
        return f"Did you mean {' or '.join(close)}?"
    more = f" and {len(everything) - SHOWN} more" if len(everything) > SHOWN else ""
    return f"{what}: {', '.join(everything[:SHOWN])}{more}."
