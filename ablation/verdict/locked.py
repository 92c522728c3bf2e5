"""What a verdict needs of a locked plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ablation.plan.model import Plan


class Locked(Protocol):
    """See `plan.lock.LockedPlan`."""

    plan: Plan
    path: Path
    lock: Any

    @property
    def digest(self) -> str: ...
