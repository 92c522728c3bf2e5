"""`grades.json` as text, put together from its few different pieces: a row of it is not worth an object of its own.

The bytes are those of `files.json_bytes`, so whether a file holds certain grades can be told without parsing its rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from ablation.files import json_bytes, parse_json
from ablation.problems.outcome import Grade
from ablation.rollouts.columns import Coded
from ablation.rollouts.stage import Stage

_NONE = b'"rollouts": []'
_OPEN, _CLOSE = b'"rollouts": [\n', b"\n  ]"


_TOGETHER = 4096
"""Rows that are put together in one go, so that they stay in the processor's cache."""


def record_bytes(stage: Stage, grades: Coded[Grade | None], rest: dict[str, Any]) -> bytes:
    """`json_bytes` of `rest` with `rollouts`: the key and grade of each rollout of `stage`."""
    around = json_bytes(rest | {"rollouts": []})
    return around.replace(_NONE, b"".join(_rows(stage, grades)), 1) if len(stage) else around


def rest_if_equal(data: bytes, stage: Stage, grades: Coded[Grade | None]) -> Any:
    """What `record_bytes` was given as `rest`, with no rollouts in it, if `data` is what it gave; else None."""
    start = end = data.find(_OPEN)
    if start < 0:
        return None
    for rows in _rows(stage, grades):
        if not data.startswith(rows, end):
            return None
        end += len(rows)
    try:
        return parse_json(data[:start] + _NONE + data[end:])
    except ValueError:
        return None


def _rows(stage: Stage, grades: Coded[Grade | None]) -> Iterator[bytes]:
    """The field `rollouts`, piece by piece."""
    index, place = np.unique(stage.index, return_inverse=True)
    effort, problem = ([_json(one) for one in names.values] for names in (stage.effort, stage.problem))
    fields = [[_json(getattr(one, name, None)) for one in grades.values] for name in ("extracted", "reason", "status")]
    after = [f'      "reason": {reason},\n      "status": {status}\n    }}' for _, reason, status in zip(*fields, strict=True)]
    pieces = [
        ([f',\n    {{\n      "effort": {one},\n' for one in effort], stage.effort.codes),
        ([f'      "extracted": {one},\n      "index": ' for one in fields[0]], grades.codes),
        ([f'{one},\n      "problem": ' for one in index.tolist()], place),
        ([f"{one},\n" for one in problem], stage.problem.codes),
        (after, grades.codes),
    ]
    columns = [(np.array([one.encode() for one in texts], dtype=object), codes) for texts, codes in pieces]
    for first in range(0, len(stage), _TOGETHER):
        rows = slice(first, first + _TOGETHER)
        text = b"".join(np.stack([texts[codes[rows]] for texts, codes in columns], axis=1).ravel().tolist())
        yield text if first else _OPEN + text[2:]
    yield _CLOSE


def _json(value: str | None) -> str:
    return json.dumps(value, ensure_ascii=False)
