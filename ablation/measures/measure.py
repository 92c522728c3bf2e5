"""The measures of one stage: counts as whole numbers, means as floats, in all and by effort and source.

What a stage does not define is null, never a number: a mean over nothing, a median over nothing, a share of nothing, and what
is made of the thinking where that of any rollout is not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ablation.plan.measures import ANSWER_COUNTS
from ablation.rollouts.columns import numbered
from ablation.rollouts.imported import OF_THINKING
from ablation.rollouts.means import mean
from ablation.rollouts.outcomes import Outcomes

_COUNTS = (*ANSWER_COUNTS, "finished", "stopped_in_thinking")
_VALUES = ("correct", "thinking_length", "total_tokens", "logprob", "top_entropy", "top_mass", "cjk_share", "redacted")


def measure(outcomes: Outcomes) -> dict[str, Any]:
    """The content of `measures.json`; `runs/README.md` names every field. Row order does not matter."""
    (efforts, effort), (sources, source) = numbered(outcomes.effort), numbered(outcomes.source)
    cell = numbered(outcomes.problem)[1] * len(efforts) + effort
    columns = {name: getattr(outcomes, name) for name in (*_COUNTS, *_VALUES)}
    result = _group(columns, cell)
    for name, labels, place in (("by_effort", efforts, effort), ("by_source", sources, source)):
        result[name] = {}
        for number, label in enumerate(labels):
            rows = place == number
            result[name][str(label)] = _group({one: values[rows] for one, values in columns.items()}, cell[rows])
    return result


def _group(columns: dict[str, np.ndarray], cell: np.ndarray) -> dict[str, Any]:
    """`columns`: those of `Outcomes` that count; `cell`: a number for the cell of each rollout."""
    clean, correct = columns["clean"], int(columns["correct"].sum())
    thought = columns["thinking_length"] > 0
    total = int(columns["total_tokens"].sum())
    found = {
        "rollouts": len(cell),
        "cells": len(np.unique(cell)),
        **{name: int(columns[name].sum()) for name in _COUNTS},
        "with_thinking": int(thought.sum()),
        "total_tokens": total,
        "thinking_tokens": int(columns["thinking_length"].sum()),
        "tokens_per_correct": total / correct if correct else None,
        "clean_length": _mean(columns["thinking_length"][clean]),
        "logprob": _mean(columns["logprob"][thought]),
        "top20_entropy": _mean(columns["top_entropy"][thought]),
        "top20_mass": _mean(columns["top_mass"][thought]),
        "cjk_share": float(np.median(columns["cjk_share"][clean])) if clean.any() else None,
    }
    return found | dict.fromkeys(found.keys() & set(OF_THINKING)) if columns["redacted"].any() else found


def _mean(values: np.ndarray) -> float | None:
    """None over nothing, and if any is not finite."""
    return mean(values) if len(values) and np.isfinite(values).all() else None
