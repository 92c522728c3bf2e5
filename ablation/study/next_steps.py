"""What comes next in phase 2, as the command that does it."""

from __future__ import annotations

from pathlib import Path

from ablation.plan.lock import LockedPlan


def after_evaluation(locked: LockedPlan, root: Path, set_name: str, subject: str) -> str:
    """What follows when `subject` was compared on the set: its blinded read, the labels of its answers, or the verdict."""
    if set_name == "held-out" and locked.plan.verdict.held_out is not None:
        return f"ablation blind pairs held-out --subject {subject}"
    if set_name == "safety":
        return f"ablation blind pairs safety --subject {subject}"
    return "ablation verdict"
