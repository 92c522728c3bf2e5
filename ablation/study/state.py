"""How far a run is, read from its folder alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ablation.plan.model import Plan
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.store import stage_is_complete, stage_parts


@dataclass(frozen=True)
class ArmState:
    """One arm in one family."""

    family: str
    arm: str
    updates_done: int
    updates: int
    readout: str  # "no" | "partly" | "yes"
    stopped: bool

    @property
    def finished(self) -> bool:
        return self.readout == "yes" or self.stopped


@dataclass(frozen=True)
class RunState:
    """All that a run has to show. The second family lists its control and whatever else was begun there."""

    root: Path
    sweeps: dict[str, str]
    arms: list[ArmState]


def _presence(folder: Path) -> str:
    if stage_is_complete(folder):
        return "yes"
    return "partly" if stage_parts(folder) else "no"


def run_state(plan: Plan, root: Path) -> RunState:
    """The state of the run of `plan` in `root`; the folder need not exist."""
    run = RunFolder(root)
    replication = plan.verdict.replication
    wanted = [(plan.main_family, arm) for arm in plan.arms]
    wanted += [
        (replication.family, arm) for arm in plan.arms if arm == replication.control or run.arm(replication.family, arm).is_dir()
    ]
    arms = [_arm_state(run, plan, family, arm) for family, arm in wanted]
    return RunState(root, {family: _presence(run.sweep(family)) for family in plan.families}, arms)


def _arm_state(run: RunFolder, plan: Plan, family: str, arm: str) -> ArmState:
    done = 0
    while done < plan.training.updates and (run.checkpoint(family, arm, done + 1) / "complete.json").is_file():
        done += 1
    return ArmState(
        family, arm, done, plan.training.updates, _presence(run.readout(family, arm)), run.stopped(family, arm).is_file()
    )
