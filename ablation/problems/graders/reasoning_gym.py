"""`reasoning_gym`: the answer is scored by the dataset of `reasoning-gym` that made the problem; a score of 1 or more is correct.

What is scored: the text in the last `<answer>...</answer>`, else in the last complete box, else the whole visible answer, without
white space around it. `entry` holds what the dataset needs:

    {"dataset": "countdown", "seed": 7, "index": 3, "config": {...}, "metadata": {...}}

`config` has the settings that are not the dataset's defaults; `metadata` is the entry's own. Datasets evaluate what their entries
say, so nothing that a file says is scored: the entry is made again from dataset, seed, index and config, once, and held against
the problem. Its question must be in the prompt, and gold and metadata must be the same; else no answer to it is graded.

All this is done in a worker process (`reasoning_gym_work`) under limits. Reasons are those of `math`; a wrong answer with a score
between 0 and 1 is `partly_right`. A problem whose entry cannot be made again is a grader error: `entry_differs`,
`unreadable_entry` (the package cannot make it), or `entry_time` and the like (the worker failed).
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ablation.errors import UsageError
from ablation.problems.extract import last_box
from ablation.problems.graders.failed import failed_grade
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.problems.workers import Failure, Limits, run_items

LIMITS = Limits(memory=4 << 30)
VERSION = "0.1.25"
"""What a dataset scores, and how, changes between versions."""
WORK = "ablation.problems.graders.reasoning_gym_work"
_FIELDS = {"dataset": str, "seed": int, "index": int, "config": dict, "metadata": dict}
_made: dict[str, dict[str, Any]] = {}
"""What the package made, by what it was made from."""
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """A problem's `entry`, checked."""

    dataset: str
    seed: int
    index: int
    config: dict[str, Any]
    metadata: dict[str, Any]

    @property
    def drawn(self) -> tuple[str, int, int, dict[str, Any]]:
        """What it is made from."""
        return self.dataset, self.seed, self.index, self.config


def read_entry(entry: dict[str, Any] | None, where: str) -> Entry:
    """A problem's entry. Raises `UsageError` with `where` and the field that is wrong."""
    values = entry or {}
    unknown = sorted(set(values) - set(_FIELDS))
    if unknown:
        raise UsageError(f"{where}: unknown field `{unknown[0]}`", hint=f"Known fields: {', '.join(_FIELDS)}.")
    for name, kind in _FIELDS.items():
        if name not in values or not isinstance(values[name], kind) or isinstance(values[name], bool):
            found = f"found {values[name]!r}, not {kind.__name__}" if name in values else "is missing"
            raise UsageError(f"{where}.{name}: {found}", hint="`ablation problems make reasoning-gym` writes entries.")
    return Entry(**values)


def read_answer(text: str) -> str:
    """What is scored of a visible answer."""
    tagged = _ANSWER.findall(text)
    if tagged:
        return tagged[-1].strip()
    boxed = last_box(text)
    return text.strip() if boxed is None else boxed


def grade_many(pairs: Sequence[tuple[Problem, str]], workers: int = 1, limits: Limits = LIMITS) -> list[Grade]:
    """The grade of each pair. Raises `UsageError` if `reasoning-gym` is missing or of another version, or for an entry's form."""
    gym_version()
    answers = [read_answer(answer) for _, answer in pairs]
    asked = [place for place, answer in enumerate(answers) if answer]
    entries = {place: read_entry(pairs[place][0].entry, f"problem `{pairs[place][0].id}`: entry") for place in asked}
    made = dict(zip(asked, make_items([entries[place].drawn for place in asked], workers, limits), strict=True))
    grades = [Grade("no_answer", None, "empty")] * len(pairs)
    items = {}
    for place in asked:
        if reason := _refused(pairs[place][0], entries[place], made[place]):
            grades[place] = Grade("grader_error", answers[place], reason)
        else:
            items[place] = ["score", entries[place].dataset, entries[place].config, made[place], answers[place]]
    for place, found in zip(items, run_items(WORK, list(items.values()), limits=limits, workers=workers), strict=True):
        grades[place] = _grade_of(answers[place], found)
    return grades


def make_items(
    drawn: Iterable[tuple[str, int, int, dict[str, Any]]], workers: int = 1, limits: Limits = LIMITS
) -> list[dict[str, Any] | Failure]:
    """What the package makes of each (dataset, seed, index, config), as `reasoning_gym_work` says; each once in this process."""
    drawn = list(drawn)
    keys = [json.dumps(one) for one in drawn]
    wanted = {key: ["make", *one] for key, one in zip(keys, drawn, strict=True) if key not in _made}
    now = dict(zip(wanted, run_items(WORK, list(wanted.values()), limits=limits, workers=workers), strict=True))
    _made.update({key: one for key, one in now.items() if not isinstance(one, Failure)})
    return [now[key] if key in now else _made[key] for key in keys]


def gold_answer(problem: Problem) -> str | None:
    """The gold between the tags of an answer."""
    return f"<answer>{problem.gold}</answer>"


def gym_version() -> str:
    """The version that is installed. Raises `UsageError` if it is none or another one than `VERSION`."""
    hint = f"Install it: pip install reasoning-gym=={VERSION}"
    try:
        version = importlib.metadata.version("reasoning-gym")
    except importlib.metadata.PackageNotFoundError:
        raise UsageError("grader `reasoning_gym` needs the package reasoning-gym", hint=hint) from None
    if version != VERSION:
        raise UsageError(f"reasoning-gym {version} is installed; grader `reasoning_gym` was made for {VERSION}", hint=hint)
    return version


def _refused(problem: Problem, entry: Entry, made: dict[str, Any] | Failure) -> str | None:
    """Why no answer to `problem` is graded, None if its entry is what the package makes."""
    if isinstance(made, Failure):
        return f"entry_{made.kind}"
    if "failed" in made:
        return "unreadable_entry"
    own = (made["answer"], made["metadata"])
    return None if made["question"] in problem.prompt and own == (problem.gold, entry.metadata) else "entry_differs"


def _grade_of(answer: str, found: dict[str, Any] | Failure) -> Grade:
    if isinstance(found, Failure) or "failed" in found:
        return failed_grade(found, answer)
    if found["score"] >= 1:
        return Grade("correct", answer)
    return Grade("incorrect", answer, "partly_right" if found["score"] > 0.05 else "wrong_answer")
