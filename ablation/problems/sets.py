"""Problem sets that are written out once, to a file that a plan then names by digest: generators, wheels, a hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.files import write_bytes
from ablation.problems.digest import fingerprint
from ablation.problems.grade import check_problems
from ablation.problems.problem import Problem, check_readable, problem_line

_BATCH = 50


@dataclass(frozen=True)
class Made:
    """Problems, and how many items of the generator were passed over."""

    problems: list[Problem]
    repeated: int = 0
    refused: int = 0


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write `problems` as JSON Lines; the file appears whole.

    Raises:
        UsageError: naming the first that could not be read again: an id that is none or comes twice, an empty prompt.
    """
    problems = list(problems)
    check_readable(problems, str(path))
    write_bytes(path, "".join(problem_line(problem) + "\n" for problem in problems).encode())


def reasoning_gym_problems(name: str, size: int, seed: int, config: dict[str, Any] | None = None) -> Made:
    """The first `size` problems of a `reasoning-gym` dataset that have a gold which grades as correct, each text once.

    Item i of a dataset is drawn from seed + i, so sets of nearby seeds share items.

    Raises:
        UsageError: the package is missing or of another version, the dataset or a setting does not exist, or none of 50 items in
        a row can be used.
    """
    from ablation.problems.graders.reasoning_gym import gym_version, make_items

    gym_version()
    problems: list[Problem] = []
    seen: set[str] = set()
    repeated = refused = start = 0
    while len(problems) < size:
        batch = []
        places = range(start, start + min(_BATCH, size - len(problems)))
        for place, made in zip(places, make_items([(name, seed, place, config or {}) for place in places]), strict=True):
            problem = _gym_problem(made, name, seed, place, config or {})
            text = problem and fingerprint(problem).text
            if problem is None:
                refused += 1
            elif text in seen:
                repeated += 1
            else:
                seen.add(text)
                batch.append(problem)
            start = place + 1
        failed = {line.split("`")[1] for line in check_problems({problem.id: problem for problem in batch})}
        refused += len(failed)
        problems += [problem for problem in batch if problem.id not in failed]
        if start >= len(problems) + _BATCH and len(problems) < start / 2:
            raise UsageError(
                f"reasoning-gym {name}: of {start} items {repeated} repeat another and {refused} have no gold that can be graded",
                hint="Ask for fewer, change its settings, or choose another dataset.",
            )
    return Made(problems, repeated, refused)


def _gym_problem(made: Any, name: str, seed: int, place: int, config: dict[str, Any]) -> Problem | None:
    """None if the item has no gold, or if what it is scored by cannot be written down. Raises `UsageError` if it was not made."""
    said = made.get("said") if isinstance(made, dict) else f"{made.kind} {made.detail}".strip()
    failed = made.get("failed") if isinstance(made, dict) else "item"
    if failed == "data":
        return None
    if failed:
        where = f"could not make item {place}: " if failed == "item" else ""
        raise UsageError(f"reasoning-gym {name}: {where}{said}", hint="Look at the dataset's configuration class and settings.")
    entry = {"dataset": name, "seed": seed, "index": place, "config": config, "metadata": made["metadata"]}
    return Problem(f"{name}-{seed}-{place}", name, made["question"], "reasoning_gym", made["answer"], entry=entry)


@dataclass(frozen=True)
class HubColumns:
    """Which columns of a data set become which fields."""

    prompt: str
    gold: str
    id: str | None = None
    gold_after: str | None = None
    """The gold is what follows the last of these marks, for instance `####`."""


def hub_problems(
    name: str, split: str, grader: str, columns: HubColumns, config: str | None = None, revision: str | None = None
) -> list[Problem]:
    """The rows of one split of a data set, on the Hugging Face hub or in a folder, as problems of one grader.

    Raises:
        UsageError: the package is missing, the hub or the data set cannot be reached, or a row has no such column.
    """
    problems = []
    for place, row in enumerate(_hub_rows(name, split, config, revision)):
        where = f"{name} {split}, row {place}"
        values = {}
        for field, column in (("prompt", columns.prompt), ("gold", columns.gold), ("id", columns.id)):
            if column is None:
                continue
            if row.get(column) is None:
                raise UsageError(f"{where}: column `{column}` is missing", hint=f"The columns are: {', '.join(row)}.")
            values[field] = str(row[column])
        if columns.gold_after is not None:
            values["gold"] = values["gold"].rpartition(columns.gold_after)[2]
        source = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(name).name)
        problem_id = values.get("id", f"{source}-{split}-{place}")
        problems.append(Problem(problem_id, source, values["prompt"], grader, values["gold"].strip()))
    return problems


def _hub_rows(name: str, split: str, config: str | None, revision: str | None) -> Iterator[dict[str, Any]]:
    try:
        import datasets
    except ImportError:
        hint = "Install it: pip install -e '.[problems]'"
        raise UsageError("a data set of the hub needs the package datasets", hint=hint) from None
    datasets.disable_progress_bars()
    try:
        rows = datasets.load_dataset(name, config, split=split, revision=revision)
    except Exception as error:  # the package and those below it raise a dozen kinds
        said = " ".join(str(error).split())[:300]
        raise UsageError(
            f"{name}: could not be loaded: {type(error).__name__}: {said}",
            hint="Is the hub in reach, and are name, configuration and split right? A folder of JSONL files works, too.",
        ) from error
    yield from rows
