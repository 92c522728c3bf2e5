"""What the plan allows to be sampled, trained or imported now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablation.errors import GateError
from ablation.plan.deviations import Deviation, opened_by
from ablation.plan.lock import LockedPlan
from ablation.plan.runs import planned_runs
from ablation.verdict.run import first_stable_arm


def check_family_gate(locked: LockedPlan, root: Path, deviations: Sequence[Deviation], family: str, arm: str) -> Deviation | None:
    """The deviation that lets `arm` into `family`, None if the plan itself does.

    Raises `GateError` if neither does, `IncompleteError` if which arm is replicated is not known yet.
    """
    replication = locked.plan.verdict.replication
    planned = planned_runs(locked.plan)
    if (family, arm) in planned:
        return None
    if family != replication.family:
        own = [name for one, name in planned if one == family]
        why = f"only {', '.join(own)} runs in it, for a claim" if own else "so nothing runs in it"
        raise GateError(f"family `{family}` has no part in this plan's verdict" + f", {why}")
    opened = opened_by(deviations, "replication")
    if opened is not None:
        return opened
    stable = first_stable_arm(root, locked)
    if arm != stable:
        which = f"that is {stable}" if stable else "there is none"
        raise GateError(
            f"the plan replicates {replication.control} and the first arm that was stable in {locked.plan.main_family}: "
            f"{which}, not {arm}",
            hint="Running it anyway is a deviation: `ablation plan deviate PLAN --opens replication ...`, before it is run.",
        )
    return None
