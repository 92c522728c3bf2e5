"""Whether problem files can be used: every gold against its own grader, every text once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ablation.problems.digest import fingerprint
from ablation.problems.grade import check_problems, grader_module
from ablation.problems.problem import Problem, load_problems


@dataclass
class SetCheck:
    """What was found in some files."""

    problems: dict[Path, int] = field(default_factory=dict)
    """Problems by file."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Problems by (source, grader)."""
    failed: list[str] = field(default_factory=list)
    """One line for each gold that does not grade as correct."""
    unchecked: list[str] = field(default_factory=list)
    """Problems with nothing to check against: code without a canonical solution."""
    repeated: list[str] = field(default_factory=list)
    """One line for each problem whose text came before."""
    near: int = 0
    """Groups of different texts that differ in numbers alone."""

    @property
    def good(self) -> bool:
        """Nothing is wrong with these files."""
        return not (self.failed or self.repeated)


def check_files(paths: list[Path]) -> SetCheck:
    """Load and check `paths`, alone and together. Raises `UsageError` for a file that cannot be read as problems."""
    found = SetCheck()
    first: dict[str, str] = {}
    near: dict[str, set[str]] = {}
    for path in paths:
        problems = load_problems(path)
        found.problems[path] = len(problems)
        found.counts.update((problem.source, problem.grader) for problem in problems.values())
        found.failed += [f"{path}: {line}" for line in check_problems(problems)]
        found.unchecked += [f"{path}: problem `{one.id}`" for one in problems.values() if _has_no_gold(one)]
        for problem in problems.values():
            digest, name = fingerprint(problem), f"{path}: problem `{problem.id}`"
            if digest.text in first:
                found.repeated.append(f"{name} has the text of {first[digest.text]}")
            first.setdefault(digest.text, name)
            near.setdefault(digest.near, set()).add(digest.text)
    found.near = sum(len(texts) > 1 for texts in near.values())
    return found


def _has_no_gold(problem: Problem) -> bool:
    return grader_module(problem.grader).gold_answer(problem) is None
