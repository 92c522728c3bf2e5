"""The verdict on a run as `verdict.json` has it: with how often luck alone would fail each guard of its release."""

from __future__ import annotations

from pathlib import Path

from ablation.verdict.model import Verdict
from ablation.verdict.run import Locked, judge_run


def judge_whole(root: Path, locked: Locked, options: str | None, *, regrade: bool = False) -> Verdict:
    """See `judge_run` for arguments and errors."""
    found = judge_run(root, locked, options, regrade=regrade)
    if "release" in found.sections and found.sections["release"].compared:
        from ablation.power.guards import with_false_alarms  # simulates, with packages that most verdicts do without

        found = with_false_alarms(found, locked.plan)
    return found
