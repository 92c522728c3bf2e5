"""Grades beside a stage, in `grades.json`: what a slow grader said once need not be computed again at every verdict.

The file names the digest of the stage's `stage.json`, each grader with its source and packages, and a grade for each rollout, in
the stage's order. It holds no time, so equal grades give equal bytes. The journal's `stage_graded` event holds its digest.

Cheap graders are asked anew whenever a stage is read, and must say what is stored. The others (`SLOW`) are taken from the file.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import ablation
from ablation.errors import IntegrityError
from ablation.files import json_bytes, parse_json, sha256_bytes, sha256_file
from ablation.problems.grade import grade_all
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.rollouts.folder import grades_file, stage_file
from ablation.rollouts.stage import Stage
from ablation.rollouts.thinking import split

GRADES_VERSION = 1
SLOW = ("math", "reasoning_gym", "code")
"""Graders whose grades are taken from the file: they need worker processes or sandboxes."""

_STATUSES = ("correct", "incorrect", "no_answer", "grader_error")
_PACKAGES = {"math": ("math-verify", "latex2sympy2_extended", "sympy"), "reasoning_gym": ("reasoning-gym",)}
_HINT = "Put the file back from a copy, or remove it: `ablation grade` grades the rollouts anew."


@dataclass(frozen=True)
class StoredGrades:
    """What `grades.json` of a stage says."""

    grades: list[Grade | None]
    """One a rollout, in the stage's order; None where there is no visible answer."""
    graders: dict[str, dict[str, Any]]
    """Grader -> `source_sha256`, `packages`."""

    @property
    def errors(self) -> list[int]:
        """Rows on which the grader failed."""
        return [row for row, one in enumerate(self.grades) if one is not None and one.status == "grader_error"]


def grades_of(folder: Path, stage: Stage, problems: Mapping[str, Problem], *, again: bool = False) -> list[Grade | None]:
    """The grade of each rollout of the stage in `folder`, None where there is no visible answer.

    Slow graders' grades come from `grades.json` if there is one, unless `again`.

    Raises:
        IntegrityError: the file is not of this stage, or a cheap grader says something else now; or as `answers`.
    """
    stored = None if again else read_grades(folder, stage)
    if stored is None:
        return grade_rows(stage, problems)
    asked = answers(stage, problems)
    cheap = [row for row, pair in enumerate(asked) if pair is not None and pair[0].grader not in SLOW]
    for row, found in zip(cheap, grade_all([asked[row] for row in cheap if asked[row]]), strict=True):
        if found != stored.grades[row]:
            raise IntegrityError(
                f"{grades_file(folder)}: rollout {stage.name(row)} is stored as {in_words(stored.grades[row])}, "
                f"but grader `{asked[row][0].grader}` says {in_words(found)}",
                hint=_HINT,
            )
    for row, pair in enumerate(asked):
        if (pair is None) != (stored.grades[row] is None):
            raise IntegrityError(
                f"{grades_file(folder)}: rollout {stage.name(row)} has {'no ' if pair else 'a '}grade, "
                f"but {'an' if pair else 'no'} answer",
                hint=_HINT,
            )
    return stored.grades


def answers(stage: Stage, problems: Mapping[str, Problem]) -> list[tuple[Problem, str] | None]:
    """What is graded of each rollout: its problem and visible answer; None where the thinking was never closed.

    Raises `IntegrityError`: a rollout's problem is unknown or has another source, or an answer is stored where there can be none.
    """
    thinking = split(stage)
    visible = thinking.closed | ~thinking.opened
    found: list[tuple[Problem, str] | None] = []
    for row in range(len(stage)):
        problem = problems.get(stage.problem[row])
        if problem is None:
            raise IntegrityError(f"rollout {stage.name(row)}: there is no problem `{stage.problem[row]}`")
        if problem.source != stage.source[row]:
            raise IntegrityError(
                f"rollout {stage.name(row)}: source is `{stage.source[row]}`, its problem's is `{problem.source}`"
            )
        if not visible[row] and stage.answer_text[row]:
            raise IntegrityError(f"rollout {stage.name(row)}: has an answer text, but its thinking was never closed")
        found.append((problem, stage.answer_text[row]) if visible[row] else None)
    return found


def grade_rows(stage: Stage, problems: Mapping[str, Problem], kept: Sequence[Grade | None] | None = None) -> list[Grade | None]:
    """The grades of `stage`, computed now. With `kept`, only the rows that the grader failed on are graded again."""
    asked = answers(stage, problems)
    grades: list[Grade | None] = list(kept) if kept is not None else [None] * len(asked)
    rows = [
        row
        for row, pair in enumerate(asked)
        if pair is not None and (kept is None or kept[row] is None or kept[row].status == "grader_error")
    ]
    for row, found in zip(rows, grade_all([asked[row] for row in rows if asked[row]]), strict=True):
        grades[row] = found
    return grades


def read_grades(folder: Path, stage: Stage) -> StoredGrades | None:
    """What is stored beside the stage in `folder`, None if nothing is. Raises `IntegrityError` if it is not of this stage."""
    path = grades_file(folder)
    try:
        content = parse_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise IntegrityError(f"{path}: is not a file of grades ({error})", hint=_HINT) from None
    try:
        if content["grades_version"] != GRADES_VERSION:
            raise IntegrityError(f"{path}: has version {content['grades_version']}, this program reads version {GRADES_VERSION}")
        digest = sha256_file(stage_file(folder))
        if content["stage_sha256"] != digest:
            raise IntegrityError(f"{path}: holds the grades of another stage than {stage_file(folder)}", hint=_HINT)
        rows = content["rollouts"]
        names = [(row["problem"], row["effort"], row["index"]) for row in rows]
        grades = [None if row["status"] is None else Grade(row["status"], row["extracted"], row["reason"]) for row in rows]
        graders = dict(content["graders"])
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"{path}: is not a file of grades ({type(error).__name__}: {error})", hint=_HINT) from None
    if names != list(zip(stage.problem, stage.effort, stage.index.tolist(), strict=True)):
        raise IntegrityError(f"{path}: its rollouts are not those of the stage", hint=_HINT)
    wrong = next((one.status for one in grades if one is not None and one.status not in _STATUSES), None)
    if wrong is not None:
        raise IntegrityError(f"{path}: `{wrong}` is no status of a grade", hint=_HINT)
    return StoredGrades(grades, graders)


def grades_record(folder: Path, stage: Stage, grades: Sequence[Grade | None], problems: Mapping[str, Problem]) -> bytes:
    """What `grades.json` of the stage in `folder` holds."""
    rows = []
    for row, one in enumerate(grades):
        key = {"problem": stage.problem[row], "effort": stage.effort[row], "index": int(stage.index[row])}
        values = {name: getattr(one, name, None) for name in ("status", "extracted", "reason")}
        rows.append(key | values)
    names = sorted({problems[name].grader for name in set(stage.problem)})
    content = {
        "grades_version": GRADES_VERSION,
        "stage_sha256": sha256_file(stage_file(folder)),
        "graders": {name: grader_version(name) for name in names},
        "rollouts": rows,
    }
    return json_bytes(content)


def other_graders(stored: StoredGrades) -> list[str]:
    """Slow graders that are not, here and now, what they were when the grades were stored."""
    return sorted(name for name, version in stored.graders.items() if name in SLOW and version != grader_version(name))


@cache
def grader_version(name: str) -> dict[str, Any]:
    """Digest of a grader's source, and the versions of the packages that decide with it; null where one is missing."""
    root = Path(ablation.__file__).parent / "problems"
    paths = sorted({*(root / "graders").glob(f"{name}*.py"), *(root / "graders" / one for one in ("failed.py", "text.py"))})
    paths += [root / one for one in ("extract.py", "workers.py", "worker_process.py")]
    paths += sorted((root / "sandbox").glob("*.py")) if name == "code" else []
    lines = [f"{path.relative_to(root).as_posix()}\0{sha256_file(path)}\n" for path in paths]
    packages: dict[str, str | None] = {"python": platform.python_version()} if name == "code" else {}
    for package in _PACKAGES.get(name, ()):
        try:
            packages[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            packages[package] = None
    return {"source_sha256": sha256_bytes("".join(lines).encode()), "packages": packages}


def in_words(grade: Grade | None) -> str:
    """For instance ``incorrect (wrong_answer, `8`)``."""
    if grade is None:
        return "nothing"
    more = [part for part in (grade.reason, None if grade.extracted is None else f"`{grade.extracted[:60]}`") if part]
    return grade.status + (f" ({', '.join(more)})" if more else "")
