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

import numpy as np

import ablation
from ablation.errors import IntegrityError
from ablation.files import parse_json, sha256_bytes, sha256_file
from ablation.problems.grade import grade_all
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.rollouts.columns import Coded
from ablation.rollouts.folder import grades_file, stage_file
from ablation.rollouts.grades_text import record_bytes, rest_if_equal
from ablation.rollouts.stage import Stage

GRADES_VERSION = 1
SLOW = ("math", "reasoning_gym", "code")
"""Graders whose grades are taken from the file: they need worker processes or sandboxes."""

_STATUSES = ("correct", "incorrect", "no_answer", "grader_error")
_PACKAGES = {"math": ("math-verify", "latex2sympy2_extended", "sympy"), "reasoning_gym": ("reasoning-gym",)}
_HINT = "Put the file back from a copy, or remove it: `ablation grade` grades the rollouts anew."


@dataclass(frozen=True)
class StoredGrades:
    """What `grades.json` of a stage says."""

    grades: Coded[Grade | None]
    """One a rollout, in the stage's order; None where there is no visible answer."""
    graders: dict[str, dict[str, Any]]
    """Grader -> `source_sha256`, `packages`."""

    @property
    def errors(self) -> list[int]:
        """Rows on which the grader failed."""
        return failed_rows(self.grades)


@dataclass(frozen=True)
class Asked:
    """What is graded of a stage of N rollouts: each different (problem, visible answer) once."""

    pairs: list[tuple[Problem, str]]
    pair: np.ndarray
    """Each rollout's place in `pairs`, -1 where the thinking was never closed, int64 [N]."""


def grades_of(folder: Path, stage: Stage, problems: Mapping[str, Problem], *, again: bool = False) -> Coded[Grade | None]:
    """The grade of each rollout of the stage in `folder`, None where there is no visible answer.

    Slow graders' grades come from `grades.json` if there is one, unless `again`.

    Raises:
        IntegrityError: the file is not of this stage, or a cheap grader says something else now; or as `answers`.
    """
    if again or not grades_file(folder).is_file():
        return grade_rows(stage, problems)
    asked = answers(stage, problems)
    cheap = [place for place, (problem, _) in enumerate(asked.pairs) if problem.grader not in SLOW]
    found: list[Grade | None] = [None] * len(asked.pairs)
    for place, grade in zip(cheap, grade_all(asked.pairs[place] for place in cheap), strict=True):
        found[place] = grade
    if len(cheap) == len(found):
        own = _of_pairs(asked, found)
        if _is_stored(folder, stage, own):
            return own
    stored = read_grades(folder, stage)
    assert stored is not None
    _check_stored(folder, stage, asked, found, stored.grades)
    return stored.grades


def _check_stored(folder: Path, stage: Stage, asked: Asked, found: list[Grade | None], stored: Coded[Grade | None]) -> None:
    """`found`: what the cheap graders say of each pair, None for the pairs of others."""
    places = {grade: place for place, grade in enumerate(stored.values)}
    expected = np.array([*(-2 if one is None else places.get(one, -1) for one in found), -2])[asked.pair]
    for row in np.flatnonzero((expected != -2) & (expected != stored.codes))[:1]:
        pair = asked.pair[row]
        raise IntegrityError(
            f"{grades_file(folder)}: rollout {stage.name(row)} is stored as {in_words(stored[row])}, "
            f"but grader `{asked.pairs[pair][0].grader}` says {in_words(found[pair])}",
            hint=_HINT,
        )
    for row in np.flatnonzero((asked.pair < 0) != stored.map(lambda one: one is None, bool))[:1]:
        has = asked.pair[row] >= 0
        raise IntegrityError(
            f"{grades_file(folder)}: rollout {stage.name(row)} has {'no ' if has else 'a '}grade, "
            f"but {'an' if has else 'no'} answer",
            hint=_HINT,
        )


def _is_stored(folder: Path, stage: Stage, grades: Coded[Grade | None]) -> bool:
    """Whether `grades.json` holds just these grades. False says nothing of what it holds."""
    try:
        rest = rest_if_equal(grades_file(folder).read_bytes(), stage, grades)
        named = rest and (rest["grades_version"], rest["stage_sha256"], isinstance(rest["graders"], dict))
    except (OSError, KeyError, TypeError):
        return False
    return named == (GRADES_VERSION, sha256_file(stage_file(folder)), True)


def answers(stage: Stage, problems: Mapping[str, Problem]) -> Asked:
    """What is graded: nothing of a rollout whose thinking was never closed.

    Raises `IntegrityError`: a rollout's problem is unknown or has another source, or an answer is stored where there can be none.
    """
    thinking = stage.thinking
    visible = thinking.closed | ~thinking.opened
    known = [problems.get(name) for name in stage.problem.values]
    sources = {source: place for place, source in enumerate(stage.source.values)}
    source = np.array([-1 if one is None else sources.get(one.source, -1) for one in known])[stage.problem.codes]
    wrong = (source != stage.source.codes) | (~visible & stage.answer_text.map(bool, bool))
    for row in np.flatnonzero(wrong)[:1]:
        problem = problems.get(stage.problem[row])
        if problem is None:
            raise IntegrityError(f"rollout {stage.name(row)}: there is no problem `{stage.problem[row]}`")
        if problem.source != stage.source[row]:
            raise IntegrityError(
                f"rollout {stage.name(row)}: source is `{stage.source[row]}`, its problem's is `{problem.source}`"
            )
        raise IntegrityError(f"rollout {stage.name(row)}: has an answer text, but its thinking was never closed")
    texts = stage.answer_text.values
    pair = np.full(len(stage), -1)
    both, pair[visible] = np.unique((stage.problem.codes * len(texts) + stage.answer_text.codes)[visible], return_inverse=True)
    return Asked([(known[one // len(texts)], texts[one % len(texts)]) for one in both.tolist()], pair)


def grade_rows(stage: Stage, problems: Mapping[str, Problem], kept: Sequence[Grade | None] | None = None) -> Coded[Grade | None]:
    """The grades of `stage`, computed now. With `kept`, only the rows that the grader failed on are graded again."""
    asked = answers(stage, problems)
    if kept is None:
        return _of_pairs(asked, grade_all(asked.pairs))
    before = Coded.of(kept, key=id)
    again = before.map(lambda one: one is None or one.status == "grader_error", bool) & (asked.pair >= 0)
    pairs, place = np.unique(asked.pair[again], return_inverse=True)
    codes = before.codes.copy()
    codes[again] = len(before.values) + place
    return Coded(codes, [*before.values, *grade_all(asked.pairs[pair] for pair in pairs)])


def _of_pairs(asked: Asked, grades: Sequence[Grade | None]) -> Coded[Grade | None]:
    """The grade of each rollout, given those of the pairs; equal ones become one value."""
    different = Coded.of([*grades, None], key=lambda one: one and (one.status, one.extracted, one.reason))
    return Coded(different.codes[asked.pair], different.values)  # -1 is the last one


def failed_rows(grades: Coded[Grade | None]) -> list[int]:
    """Rows on which the grader failed."""
    return np.flatnonzero(grades.map(lambda one: one is not None and one.status == "grader_error", bool)).tolist()


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
        said = Coded.of((row["status"], row["extracted"], row["reason"]) for row in rows)
        grades = Coded(said.codes, [None if status is None else Grade(status, *more) for status, *more in said.values])
        graders = dict(content["graders"])
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"{path}: is not a file of grades ({type(error).__name__}: {error})", hint=_HINT) from None
    if names != list(zip(stage.problem, stage.effort, stage.index.tolist(), strict=True)):
        raise IntegrityError(f"{path}: its rollouts are not those of the stage", hint=_HINT)
    wrong = next((one.status for one in grades.values if one is not None and one.status not in _STATUSES), None)
    if wrong is not None:
        raise IntegrityError(f"{path}: `{wrong}` is no status of a grade", hint=_HINT)
    return StoredGrades(grades, graders)


def grades_record(folder: Path, stage: Stage, grades: Sequence[Grade | None], problems: Mapping[str, Problem]) -> bytes:
    """What `grades.json` of the stage in `folder` holds."""
    names = sorted({problems[name].grader for name in stage.problem.values})
    content = {
        "grades_version": GRADES_VERSION,
        "stage_sha256": sha256_file(stage_file(folder)),
        "graders": {name: grader_version(name) for name in names},
    }
    return record_bytes(stage, grades if isinstance(grades, Coded) else Coded.of(grades, key=id), content)


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
