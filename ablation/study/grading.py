"""Writing the grades of a stage, with an event in the journal for each time that they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ablation.files import sha256_bytes, sha256_file, write_bytes
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.rollouts.folder import RunFolder, grades_file
from ablation.rollouts.grades import grade_rows, grades_record, in_words, read_grades
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import read_stage
from ablation.study.journal import Journal

UNGRADED = (("evaluations", "agent"), ("evaluations", "safety"))
WRITTEN, KEPT, TRAINED = "graded", "was graded", "kept: the update was trained with them"


@dataclass(frozen=True)
class StageGrades:
    """What came of grading one stage."""

    stage: str
    grades: list[Grade | None]
    done: str
    """WRITTEN, KEPT (there was nothing to do) or TRAINED (other grades came out, and were not written)."""
    changed: list[str]
    """One line for each rollout whose grade is another one than was stored."""
    errors: list[str]
    """Rollouts that the grader failed on."""

    @property
    def counts(self) -> dict[str, int]:
        """Status -> rollouts; `unfinished_thinking` for those without a visible answer."""
        return dict(Counter("unfinished_thinking" if one is None else one.status for one in self.grades))


def graded_stages(run: RunFolder) -> list[Path]:
    """Folder of every complete stage of `run` whose answers are graded, by name: agent turns and safety prompts are not."""
    stages = [path.parent for path in run.stage_files()]
    return [one for one in stages if one.relative_to(run.root).parts[:2] not in UNGRADED]


def problems_file(run: RunFolder, folder: Path) -> Path:
    """The run's copy of the problems that the stage in `folder` was sampled on."""
    parts = folder.relative_to(run.root).parts
    return run.set_problems(parts[1]) if parts[0] == "evaluations" else run.problems


def grade_stage(
    run: RunFolder, folder: Path, problems: Mapping[str, Problem], journal: Journal, *, again: bool = False
) -> StageGrades:
    """Grade what is not graded of the stage in `folder`: all of it, or the rows that the grader failed on; all with `again`.

    The caller holds the run's lock. An update that was trained keeps the grades that it was trained with.

    Raises:
        UsageError: a grader's package or program is missing; nothing is written.
        IntegrityError: the stage or its grades are not what was written.
    """
    stage = read_stage(folder)
    name, path = folder.relative_to(run.root).as_posix(), grades_file(folder)
    stored = read_grades(folder, stage)
    told = [event["grades_sha256"] for event in journal.events if event["event"] == "stage_graded" and event["stage"] == name]
    stale = stored is not None and told[-1:] != [sha256_file(path)]
    if stored is None or stale or again:
        found = grade_rows(stage, problems)
    elif stored.errors:
        found = grade_rows(stage, problems, stored.grades)
    else:
        return _result(name, stage, stored.grades, KEPT, [])
    changed = [] if stored is None else _changed(stage, stored.grades, found)
    if stored is not None and not stored.errors and (folder / "audit.json").is_file():
        return _result(name, stage, stored.grades, TRAINED if changed else KEPT, changed)
    record = grades_record(folder, stage, found, problems)
    if stored is not None and not stale and path.read_bytes() == record:
        return _result(name, stage, found, KEPT, [])
    result = _result(name, stage, found, WRITTEN, changed)
    # The event goes first, see StageSampler.sample.
    told_of = {"rollouts": len(stage), "grader_errors": len(result.errors), "changed": len(changed)}
    journal.append("stage_graded", stage=name, **told_of, grades_sha256=sha256_bytes(record))
    write_bytes(path, record)
    return result


def _result(name: str, stage: Stage, grades: list[Grade | None], done: str, changed: list[str]) -> StageGrades:
    errors = [stage.name(row) for row, one in enumerate(grades) if one is not None and one.status == "grader_error"]
    return StageGrades(name, grades, done, changed, errors)


def _changed(stage: Stage, before: list[Grade | None], after: list[Grade | None]) -> list[str]:
    return [
        f"{stage.name(row)}: {in_words(one)} -> {in_words(other)}"
        for row, (one, other) in enumerate(zip(before, after, strict=True))
        if one != other
    ]
