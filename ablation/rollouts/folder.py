"""Where everything of a run lies. `runs/README.md` is the reference of the files named here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ablation.errors import UsageError

START = "start"


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run. Nothing is created here, and no file is read."""

    root: Path

    def __post_init__(self) -> None:
        """Raises `UsageError` for a path that no record of the run could name."""
        try:
            str(self.root.absolute()).encode()
        except UnicodeEncodeError:
            named = os.fsencode(self.root.absolute())
            raise UsageError(f"{named!r}: a name in this path is not UTF-8", hint="Rename it, or name another folder.") from None

    @property
    def plan(self) -> Path:
        return self.root / "plan.yaml"

    @property
    def lock(self) -> Path:
        return self.root / "plan.lock"

    @property
    def problems(self) -> Path:
        return self.root / "problems.jsonl"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def deviations(self) -> Path:
        """Copy of the plan's deviations, if it has any."""
        return self.root / "deviations.jsonl"

    @property
    def verdict(self) -> Path:
        return self.root / "verdict.json"

    def sweep(self, family: str) -> Path:
        """Stage folder: the starting model on all cells."""
        return self.root / family / START / "sweep"

    def arm(self, family: str, arm: str) -> Path:
        return self.root / family / arm

    def has(self, family: str, arm: str) -> bool:
        """Whether anything of that run was begun."""
        return self.arm(family, arm).is_dir()

    def update(self, family: str, arm: str, k: int) -> Path:
        """Stage folder of update `k` (1, 2, ...): its rollouts, audit and checkpoint."""
        return self.arm(family, arm) / f"update-{k}"

    def readout(self, family: str, arm: str) -> Path:
        """Stage folder: the arm on all cells after its last update."""
        return self.arm(family, arm) / "readout"

    def check(self, family: str, arm: str, k: int) -> Path:
        """Stage folder: the extended arm on all cells after update `k`."""
        return self.arm(family, arm) / f"check-{k}"

    def check_result(self, family: str, arm: str, k: int) -> Path:
        """What the damage rules say of that check."""
        return self.check(family, arm, k) / "check.json"

    def checkpoint(self, family: str, arm: str, k: int) -> Path:
        """Folder with the adapter and the optimizer after update `k`."""
        return self.update(family, arm, k) / "checkpoint"

    def audit(self, family: str, arm: str, k: int) -> Path:
        return self.update(family, arm, k) / "audit.json"

    def stopped(self, family: str, arm: str) -> Path:
        """Exists exactly when a stop rule ended this arm."""
        return self.arm(family, arm) / "stopped.json"

    def extension_stopped(self, family: str, arm: str) -> Path:
        """Exists exactly when a stop rule ended the extension of this arm; the arm itself has a readout."""
        return self.arm(family, arm) / "extension-stopped.json"

    def evaluation_set(self, name: str) -> Path:
        """Folder of an evaluation set, for instance `held-out`: a copy of its problems, and a folder for each model compared."""
        return self.root / "evaluations" / name

    def set_problems(self, name: str) -> Path:
        """Copy of what a set samples: problems, or the agent states or safety prompts of sets that have none."""
        kind = {"agent": "states", "safety": "prompts"}.get(name, "problems")
        return self.evaluation_set(name) / f"{kind}.jsonl"

    def evaluation(self, name: str, subject: str) -> Path:
        """Folder of one comparison: `subject` is `ARM@UPDATES`, for instance `N@5`."""
        return self.evaluation_set(name) / subject

    def evaluated(self, name: str, subject: str) -> Path:
        """Stage folder: the subject on the set."""
        return self.evaluation(name, subject) / "subject"

    def evaluated_reference(self, name: str, subject: str) -> Path:
        """Stage folder: the starting model on the set, in the same seeds and the same session."""
        return self.evaluation(name, subject) / "reference"

    def evaluation_result(self, name: str, subject: str) -> Path:
        """What was compared, and how a reference that was sampled again moved; written last, when both stages are whole."""
        return self.evaluation(name, subject) / "evaluation.json"

    def blind(self, name: str, subject: str) -> Path:
        """Folder of the blinded read of that comparison."""
        return self.evaluation(name, subject) / "blind"

    def stage_files(self) -> list[Path]:
        """`stage.json` of every complete stage, evaluations included, by name."""
        return sorted([*self.root.glob("*/*/*/stage.json"), *self.root.glob("evaluations/*/*/*/stage.json")])

    def begun_stages(self) -> list[Path]:
        """Folders of stages that have rollouts and are not complete, evaluations included, by name."""
        found = set()
        for stages in ("*/*/*", "evaluations/*/*/*"):
            found |= {path.parent for path in self.root.glob(f"{stages}/part-*.parquet")}
            found |= {path.parent.parent for path in self.root.glob(f"{stages}/inflight/part-*.jsonl")}
        return sorted(folder for folder in found if not stage_file(folder).is_file())


def stage_file(stage: Path) -> Path:
    """Written last: a stage folder without it is not complete."""
    return stage / "stage.json"


def measures_file(stage: Path) -> Path:
    return stage / "measures.json"


def grades_file(stage: Path) -> Path:
    """What the graders said of each rollout."""
    return stage / "grades.json"


def part_file(stage: Path, number: int) -> Path:
    """`part-000.parquet`, `part-001.parquet`, ..."""
    return stage / f"part-{number:03d}.parquet"


def inflight_folder(stage: Path) -> Path:
    """Only in a stage that is not complete: finished rollouts of batches that are not."""
    return stage / "inflight"


def inflight_file(stage: Path, number: int) -> Path:
    """`inflight/part-000.jsonl`: what there is of the batch that will be `part-000.parquet`."""
    return inflight_folder(stage) / f"{part_file(stage, number).stem}.jsonl"
