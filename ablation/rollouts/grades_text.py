"""`grades.json` as text, put together from its few different pieces: a row of it is not worth an object of its own.

The bytes are those of `files.json_bytes`, so whether a file holds certain grades can be told without parsing its rows.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ablation.files import json_bytes, parse_json
from ablation.problems.outcome import Grade
from ablation.rollouts.columns import Coded
from ablation.rollouts.stage import Stage

_NONE = b'"rollouts": []'
_OPEN, _CLOSE = b'"rollouts": [\n', b"\n  ]"


def record_bytes(stage: Stage, grades: Coded[Grade | None], rest: dict[str, Any]) -> bytes:
    """`json_bytes` of `rest` with `rollouts`: the key and grade of each rollout of `stage`."""
    around = json_bytes(rest | {"rollouts": []})
    return around.replace(_NONE, _OPEN + _rows(stage, grades) + _CLOSE, 1) if len(stage) else around


def rest_if_equal(data: bytes, stage: Stage, grades: Coded[Grade | None]) -> Any:
    """What `record_bytes` was given as `rest`, with no rollouts in it, if `data` is what it gave; else None."""
    rows = _OPEN + _rows(stage, grades) + _CLOSE
    start = data.find(_OPEN)
    if start < 0 or data[start : start + len(rows)] != rows:
        return None
    try:
        return parse_json(data[:start] + _NONE + data[start + len(rows) :])
    except ValueError:
        return None


def _rows(stage: Stage, grades: Coded[Grade | None]) -> bytes:
    index, place = np.unique(stage.index, return_inverse=True)
    effort, problem = ([json.dumps(one, ensure_ascii=False) for one in names.values] for names in (stage.effort, stage.problem))
    extracted, said = [], []
    for grade in grades.values:
        values = {name: json.dumps(getattr(grade, name, None), ensure_ascii=False) for name in ("extracted", "reason", "status")}
        extracted.append(f'      "extracted": {values["extracted"]},\n      "index": ')
        said.append(f'      "reason": {values["reason"]},\n      "status": {values["status"]}\n    }}')
    pieces = [
        ([f',\n    {{\n      "effort": {one},\n' for one in effort], stage.effort.codes),
        (extracted, grades.codes),
        ([f'{one},\n      "problem": ' for one in index.tolist()], place),
        ([f"{one},\n" for one in problem], stage.problem.codes),
        (said, grades.codes),
    ]
    table = np.empty((len(stage), len(pieces)), dtype=object)
    for column, (texts, codes) in enumerate(pieces):
        table[:, column] = np.array(texts, dtype=object)[codes]
    return "".join(table.ravel().tolist()).encode()[2:]
