"""What a worker process does for `reasoning_gym`: make an entry, and score one answer by the dataset that made the problem.

Datasets evaluate parts of their questions, golds and metadata as Python. So what is scored was made here, by the package, from
dataset, seed, index and config, and nothing is that a file says. A config is data: a text in it is a word or one of its dataset's
own defaults. A dataset that runs programs to make its items is refused.

Some datasets evaluate an answer as Python. Here it never is: those that call `eval` on it get `ast.literal_eval`, which reads
literals alone, and those that hand it to sympy's parser, which evaluates, get it only if it is arithmetic: digits, operators,
single letters and the names of functions (without sympy's `Integral`, by which the question would be its own answer).
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import json
import random
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_EVALUATED = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
_PARSED = ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration")
_RUNS_PROGRAMS = ("codeio",)
_WORD = re.compile(r"[\w -]{0,60}")
"""Nothing that a parser could take for a call, an attribute or a path."""
_ARITHMETIC = re.compile(r"(?:[A-Za-z]|\d++(?:\.\d*+)?|\.\d++|[\s+\-*/^(),!])*+")
_FUNCTIONS = frozenset(
    ["sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]
) | {"exp", "log", "ln", "sqrt", "pi", "Abs", "erf", "erfi", "Si", "Ci", "Ei"}


def prepare() -> None:
    """Import what `work` needs, once for all children."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    for name in _EVALUATED:
        vars(sys.modules[DATASETS[name][0].__module__])["eval"] = ast.literal_eval
    reasoning_gym.create_dataset("chain_sum", size=1, seed=0)[0]


def work(item: list[Any]) -> dict[str, Any]:
    """["make", dataset, seed, index, config] or ["score", dataset, config, made, answer], by the first word."""
    return {"make": _make, "score": _score}[item[0]](*item[1:])


def is_arithmetic(answer: str) -> bool:
    """Nothing in it but numbers, operators, brackets, single letters and names of functions."""
    return bool(_ARITHMETIC.fullmatch(answer)) and all(
        len(word) == 1 or word in _FUNCTIONS for word in re.findall("[A-Za-z]+", answer)
    )


def _make(name: str, seed: int, index: int, config: dict[str, Any]) -> dict[str, Any]:
    """{"question", "answer", "metadata"}, metadata as JSON has it, or {"failed", "said"}.

    `failed`: `dataset` (there is none of that name, or one that runs programs), `config`, `item` (the dataset could not make it),
    `data` (it has no answer, or metadata that are no JSON).
    """
    from reasoning_gym.factory import DATASETS

    from ablation.plan.section import did_you_mean

    if name not in DATASETS:
        return {"failed": "dataset", "said": f"no dataset `{name}`{did_you_mean(name, DATASETS)}"}
    if name in _RUNS_PROGRAMS:
        return {"failed": "dataset", "said": "it runs programs to make its items"}
    own = set(_texts(DATASETS[name][1]()))
    for text in _texts(config):
        if text not in own and not _WORD.fullmatch(text):
            return {"failed": "config", "said": f"`{text[:60]}` is no word and none of its defaults"}
    try:
        dataset = _dataset(name, seed, 1_000_000, json.dumps(config))  # items are made one by one
    except MemoryError:
        raise
    except Exception as error:  # its configuration checks itself in its own ways
        return {"failed": "config", "said": str(error)}
    random.seed(0)  # for a dataset that does not draw from its own generator
    try:
        item = dataset[index]
    except MemoryError:
        raise
    except Exception as error:  # what a setting leads to is found by the generator alone
        return {"failed": "item", "said": f"{type(error).__name__}: {error}"}
    try:
        metadata = json.loads(json.dumps(item["metadata"], allow_nan=False))
    except (TypeError, ValueError) as error:
        return {"failed": "data", "said": str(error)}
    if not isinstance(item["answer"], str):
        return {"failed": "data", "said": "it has no answer"}
    return {"question": item["question"].strip(), "answer": item["answer"], "metadata": metadata}


def _score(name: str, config: dict[str, Any], made: dict[str, Any], answer: str) -> dict[str, Any]:
    """{"score": float} or {"failed": "answer" or "compare"}. `made` is what `_make` made."""
    if name in _PARSED and not is_arithmetic(answer):
        return {"failed": "answer"}
    try:
        score = float(_dataset(name, 0, 1, json.dumps(config)).score_answer(answer, made))
    except MemoryError:
        raise
    except Exception:
        return {"failed": "compare"}
    return {"score": score}


def _texts(value: Any) -> Iterator[str]:
    """Every text in a config or a default, names of fields included."""
    if isinstance(value, enum.Enum):
        value = value.value
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


@lru_cache(maxsize=64)
def _dataset(name: str, seed: int, size: int, config: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=size, seed=seed, **json.loads(config))
