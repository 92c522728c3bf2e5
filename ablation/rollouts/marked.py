"""Whether the ledger knows of everything that the runs beside it sampled."""

from __future__ import annotations

from pathlib import Path

from ablation.ledger.ledger import Ledger
from ablation.rollouts.journal_chain import COMPLETED, read_journal_chain


def use_of(stage: str) -> str:
    """What a stage of a run is to its problems: `stage` is its kind, `sweep`, `update`, `readout` or a check."""
    return {"sweep": "sampled", "update": "trained"}.get(stage, "evaluated")


def unmarked_stages(ledger: Ledger, runs: Path) -> list[str]:
    """One line for each stage that a run folder in `runs` tells of and the ledger has no mark of, and for each run without one.

    Raises `IntegrityError` for a journal that was edited.
    """
    marked = {(mark.plan, mark.stage) for mark in ledger.marks}
    begun = {one.run for one in ledger.runs}
    lines = []
    for journal in sorted(runs.glob("*/journal.jsonl")):
        chain = read_journal_chain(journal)
        if any("other_runs" in event for event in chain.records) and chain.digests[0] not in begun:
            lines.append(f"{journal}: began at {chain.records[0]['time']}, and the ledger has no mark of it")
        for event in chain.records:
            if event["event"] in COMPLETED and (event["plan"], event["stage"]) not in marked:
                done = event["event"].removeprefix("stage_")
                lines.append(f"{journal}: {event['stage']} was {done} at {event['time']}, and the ledger has no mark of it")
    return lines
