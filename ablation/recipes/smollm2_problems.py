"""The SmolLM2 study's problems, from three generators of `reasoning-gym`: a file that is the same everywhere.

The generators draw item i from `random.Random(seed + i)`, so two nearby seeds would share items. The seeds here are
millions apart, and the start adapter's corpus leaves out every question of the study besides.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.files import write_bytes
from ablation.problems.problem import Problem, problem_line

GYM_VERSION = "0.1.25"
PER_SOURCE = 4
STUDY_SEED = 20_261_101
CORPUS_SEED = 920_261_101

GENERATORS: dict[str, dict[str, Any]] = {
    "chain_sum": {"min_terms": 3, "max_terms": 3, "min_digits": 1, "max_digits": 2},
    "leg_counting": {"min_animals": 2, "max_animals": 2, "min_instances": 2, "max_instances": 9},
    "simple_equations": {
        "min_terms": 2,
        "max_terms": 2,
        "min_value": 2,
        "max_value": 9,
        "operators": ("+", "-", "*"),  # `*` is needed for a coefficient before the unknown, ...
        "operators_weights": [0.5, 0.5, 0.0],  # ... and never drawn between terms
    },
}
"""Generator -> settings. Sizes at which a 135M model with a little thinking is right about half of the time."""


@dataclass(frozen=True)
class Question:
    """An item of a generator: its text, its gold answer and what it was made from."""

    source: str
    text: str
    gold: str
    metadata: dict[str, Any]


def questions(source: str, seed: int) -> Iterator[Question]:
    """The items of one generator, in order and without end, each text once."""
    gym = reasoning_gym()
    size = 1_000_000  # only named, never made: items are drawn one by one
    dataset = gym.create_dataset(source, seed=seed, size=size, **GENERATORS[source])
    seen: set[str] = set()
    for index in count():
        item = dataset[index]
        text = item["question"].strip()
        if text not in seen:
            seen.add(text)
            yield Question(source, text, item["answer"], item["metadata"])


def study_questions() -> list[Question]:
    """The questions of the study: `PER_SOURCE` of each generator."""
    return [next(items) for source in GENERATORS for items in [questions(source, STUDY_SEED)] for _ in range(PER_SOURCE)]


def study_problems() -> list[Problem]:
    """The study's questions as problems with ids such as `chain_sum-2`."""
    numbers = {source: count(1) for source in GENERATORS}
    return [
        Problem(f"{question.source}-{next(numbers[question.source])}", question.source, question.text, "integer", question.gold)
        for question in study_questions()
    ]


def make_problems(path: Path) -> None:
    """Write the problems as JSON Lines. Raises `UsageError` if `reasoning-gym` is missing or another version."""
    write_bytes(path, "".join(problem_line(problem) + "\n" for problem in study_problems()).encode())


def reasoning_gym() -> Any:
    """The `reasoning_gym` module, in the version whose items the plan's digest stands for."""
    hint = f"Install it: pip install reasoning-gym=={GYM_VERSION}"
    try:
        version = importlib.metadata.version("reasoning-gym")
    except importlib.metadata.PackageNotFoundError:
        raise UsageError("the problems of this recipe need the package reasoning-gym", hint=hint) from None
    if version != GYM_VERSION:
        raise UsageError(f"reasoning-gym {version} is installed; this recipe was made for {GYM_VERSION}", hint=hint)
    import reasoning_gym

    return reasoning_gym
