"""What the browser filters and sorts rollouts by: one row a rollout, made with the program's own measures and graders.

Nothing is measured in another way here. A grade is taken from `grades.json` or, of graders that are cheap and run no code, asked
anew; where there is neither, a rollout is not graded, which is no wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ablation.files import parse_json
from ablation.plan.model import Plan
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.rollouts.columns import Coded
from ablation.rollouts.folder import grades_file, stage_file
from ablation.rollouts.grades import SLOW, grade_rows, grades_of
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import part_info, read_part, read_stage, stage_is_complete, stage_of

UNGRADED, NOT_ASKED = "ungraded", "not asked"
"""Status of a rollout that no grader has looked at, and of one without a visible answer."""
ON_CELLS = "cells"
"""`pair` of sweeps, readouts and checks: they share their seeds within a family."""

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("folder", "part", "family", "arm", "stage", "pair")),
        *((name, pa.int64()) for name in ("update", "part_row")),
        *((name, pa.string()) for name in ("problem", "effort", "source")),
        *((name, pa.int64()) for name in ("idx", "seed", "tokens", "thinking")),
        *((name, pa.bool_()) for name in ("correct", "truncated", "looping", "periodic", "strong", "finished", "answered")),
        *((name, pa.int64()) for name in ("loop_start", "loop_period", "loop_length")),
        *((name, pa.float64()) for name in ("repeated", "logprob", "entropy", "cjk")),
        *((name, pa.string()) for name in ("status", "extracted", "reason")),
    ]
)


@dataclass(frozen=True)
class Place:
    """Where the rollouts of a stage belong."""

    folder: str
    """Relative to the run folder."""
    stage: str
    """`sweep`, `readout`, `update-3`, `check-7`, or a comparison: `held-out/N@5`."""
    pair: str
    """Rollouts of one family with the same `pair`, cell and index share their seed."""

    @classmethod
    def of(cls, folder: str) -> Place:
        parts = folder.split("/")
        if len(parts) == 4:  # evaluations/SET/SUBJECT/MODEL
            stage = f"{parts[1]}/{parts[2]}"
            return cls(folder, stage, stage)
        stage = parts[-1]
        return cls(folder, stage, stage if stage.startswith("update-") else ON_CELLS)

    @property
    def evaluation(self) -> str | None:
        """The evaluation set that it is of."""
        return self.folder.split("/")[1] if self.folder.startswith("evaluations/") else None


def stage_rows(root: Path, folder: str, plan: Plan, problems: Mapping[str, Problem] | None) -> pa.Table:
    """The rows of the complete stage in `root / folder`; `problems`: None where there are none (agent states, safety prompts).

    Raises `IntegrityError` if the stage or its grades are not what was written.
    """
    stage = read_stage(root / folder)
    parts: list[str] = []
    within: list[int] = []
    for name, count in _parts(root / folder):
        parts += [name] * count
        within += range(count)
    return _table(Place.of(folder), stage, plan, _said(root / folder, stage, problems), parts, np.array(within))


def part_rows(root: Path, folder: str, part: str, plan: Plan, problems: Mapping[str, Problem] | None) -> pa.Table:
    """The rows of one part of a stage that is not complete yet."""
    path = root / folder / part
    stage = stage_of(part_info(path), read_part(path))
    slow = problems is None or any(problems[name].grader in SLOW for name in stage.problem.values if name in problems)
    said = None if slow or problems is None else grade_rows(stage, problems)
    return _table(Place.of(folder), stage, plan, said, [part] * len(stage), np.arange(len(stage)))


def _parts(folder: Path) -> list[tuple[str, int]]:
    content = parse_json(stage_file(folder).read_bytes())
    return [(entry["name"], entry["rows"]) for entry in content["parts"]]


def _said(folder: Path, stage: Stage, problems: Mapping[str, Problem] | None) -> Sequence[Grade | None] | None:
    """The grades of a complete stage, None where nobody has graded it and only a slow grader could."""
    assert stage_is_complete(folder)
    if problems is None:
        return None
    slow = any(name in problems and problems[name].grader in SLOW for name in stage.problem.values)
    return None if slow and not grades_file(folder).is_file() else grades_of(folder, stage, problems)


def _table(
    place: Place, stage: Stage, plan: Plan, said: Sequence[Grade | None] | None, parts: list[str], within: np.ndarray
) -> pa.Table:
    count, info = len(stage), stage.info
    grades = Coded.of([None] * count if said is None else said, key=id)
    usable = [None if one is not None and one.status == "grader_error" else one for one in grades.values]
    found = outcomes(stage, {}, plan.loops, Coded(grades.codes, usable))
    thinking = stage.thinking
    visible = thinking.closed | ~thinking.opened
    unsaid = UNGRADED if said is None else NOT_ASKED
    status = grades.map(lambda one: unsaid if one is None else one.status, object)
    known = (np.isin(status.astype(str), ("correct", "incorrect", "no_answer")) | ~visible) & (said is not None)
    status[~visible] = NOT_ASKED

    def text(values: np.ndarray) -> pa.Array:
        return pa.array(values.tolist(), pa.string())

    def same(value: str) -> pa.Array:
        return pa.array([value] * count, pa.string())

    def number(values: np.ndarray) -> pa.Array:
        return pa.array(values.astype(np.float64), pa.float64(), mask=~np.isfinite(values))

    def known_number(values: np.ndarray) -> pa.Array:
        return pa.array(values, pa.int64(), mask=found.redacted)

    def known_flag(values: np.ndarray) -> pa.Array:
        return pa.array(values, pa.bool_(), mask=found.redacted)

    columns = {
        "folder": same(place.folder),
        "part": pa.array(parts, pa.string()),
        "family": same(info.family),
        "arm": same(info.arm),
        "stage": same(place.stage),
        "pair": same(place.pair),
        "update": pa.array(np.full(count, info.update), pa.int64()),
        "part_row": pa.array(within, pa.int64()),
        "problem": text(found.problem),
        "effort": text(found.effort),
        "source": text(found.source),
        "idx": pa.array(stage.index, pa.int64()),
        "seed": pa.array(stage.seed, pa.int64()),
        "tokens": known_number(found.total_tokens),
        "thinking": known_number(found.thinking_length),
        "correct": pa.array(found.correct, pa.bool_(), mask=~known),
        "truncated": pa.array(found.truncated),
        "looping": known_flag(found.looping),
        "periodic": known_flag(found.periodic),
        "strong": known_flag(found.strong),
        "finished": pa.array(found.finished),
        "answered": pa.array(visible),
        "loop_start": pa.array(found.loop_start, pa.int64()),
        "loop_period": pa.array(found.loop_period, pa.int64()),
        "loop_length": pa.array(found.loop_length, pa.int64()),
        "repeated": number(np.where(found.redacted, np.nan, found.repeated_share)),
        "logprob": number(found.logprob),
        "entropy": number(found.top_entropy),
        "cjk": number(np.where(found.redacted, np.nan, found.cjk_share)),
        "status": text(status),
        "extracted": text(grades.map(lambda one: None if one is None else one.extracted, object)),
        "reason": text(grades.map(lambda one: None if one is None else one.reason, object)),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)
