"""What a worker process does for `reasoning_gym`: score one answer by the dataset that made the problem.

Some datasets evaluate an answer as Python. Here it never is: those that call `eval` on it get `ast.literal_eval`, which reads
literals alone, and those that hand it to sympy's parser, which evaluates, get it only if it is arithmetic: digits, operators,
single letters and the names of functions (without sympy's `Integral`, by which the question would be its own answer).
"""

from __future__ import annotations

import ast
import json
import re
import sys
from functools import lru_cache
from typing import Any

_EVALUATED = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
_PARSED = ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration")
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
    """[dataset, config, question, gold, metadata, answer] -> {"score": float} or {"failed": "entry", "answer" or "compare"}."""
    name, config, question, gold, metadata, answer = item
    try:
        dataset = _dataset(name, json.dumps(config))
    except MemoryError:
        raise
    except Exception:
        return {"failed": "entry"}
    if name in _PARSED and not is_arithmetic(answer):
        return {"failed": "answer"}
    try:
        score = float(dataset.score_answer(answer, {"question": question, "answer": gold, "metadata": metadata}))
    except MemoryError:
        raise
    except Exception:
        return {"failed": "compare"}
    return {"score": score}


def is_arithmetic(answer: str) -> bool:
    """Nothing in it but numbers, operators, brackets, single letters and names of functions."""
    return bool(_ARITHMETIC.fullmatch(answer)) and all(
        len(word) == 1 or word in _FUNCTIONS for word in re.findall("[A-Za-z]+", answer)
    )


@lru_cache(maxsize=64)
def _dataset(name: str, config: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=1, seed=0, **json.loads(config))
