"""Texts that nobody may look at yet: a blinded read of them is planned or under way. One rule for terminal and viewer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from shlex import quote
from typing import Any

from ablation.blind.build import settings_of
from ablation.errors import GateError, UsageError
from ablation.plan.model import Plan
from ablation.rollouts.blind_record import UNSEALED, BlindFolder
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import read_journal

SETS = ("held-out", "safety")
"""Sets that a plan can have read blind."""


def closed_reads(
    run: RunFolder, plan: Plan, events: Callable[[], Sequence[Mapping[str, Any]]] | None = None
) -> list[BlindFolder]:
    """Comparisons whose answers the plan has read blind and whose own read was not opened, begun or not, by set and subject.

    `events`: gives the run's journal, which is read here if left out; it is asked only where there is such a comparison.
    """
    found = []
    for name in SETS:
        try:
            settings_of(plan, name)
        except UsageError:
            continue
        found += [BlindFolder(run, name, path.name) for path in sorted(run.evaluation_set(name).glob("*@*")) if path.is_dir()]
    if not found:
        return []
    told = events() if events is not None else read_journal(run.journal) if run.journal.is_file() else []
    opened = {(one.get("set"), one.get("subject")) for one in told if one.get("event") == UNSEALED}
    return [one for one in found if (one.name, one.subject) not in opened]


def closing(stage: str, reads: Iterable[BlindFolder]) -> list[BlindFolder]:
    """Those of `reads` (of `closed_reads`) that close a stage, `evaluations/SET/SUBJECT/SIDE`; empty if it may be looked at.

    The start's answers are a side of every read of a set, so they are closed while any of them is.
    """
    parts = stage.split("/")
    if len(parts) != 4 or parts[0] != "evaluations" or parts[3] not in ("subject", "reference"):
        return []
    of_set = [one for one in reads if one.name == parts[1]]
    own = [one for one in of_set if one.subject == parts[2]]
    return own or (of_set if parts[3] == "reference" else [])


def refuse_closed(run: RunFolder, plan: Plan, stages: Iterable[str], options: str) -> None:
    """Raise `GateError` if one of `stages` is closed. `options`: which plan and run, for the printed command."""
    named = [stage for stage in stages if stage.startswith("evaluations/")]
    reads = closed_reads(run, plan) if named else []
    for stage in named:
        for read in closing(stage, reads):
            _, name, subject, _ = stage.split("/")
            raise GateError(
                f"{name}/{subject}: the plan has answers of `{name}` read blind, and the read of {read.subject} was not opened: "
                "a person who has seen them is no blind rater",
                hint=f"`ablation blind unseal {name} --subject {quote(read.subject)}{options}` opens it when every rating is in.",
            )
