"""The measures of one stage: counts as whole numbers, means as floats, in all and by effort and source.

What a stage does not define is null, never a number: a mean over nothing, a median over nothing, a share of nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ablation.plan.rules import COUNT_MEASURES
from ablation.rollouts.columns import numbered
from ablation.rollouts.means import mean
from ablation.rollouts.outcomes import Outcomes

OTHER_COUNTS = ("finished", "periodic", "strong", "stopped_in_thinking")


def measure(outcomes: Outcomes) -> dict[str, Any]:
    """The content of `measures.json`; `runs/README.md` names every field. Row order does not matter."""
    (efforts, effort), (sources, source) = numbered(outcomes.effort), numbered(outcomes.source)
    cell = numbered(outcomes.problem)[1] * len(efforts) + effort
    result = _group(outcomes, cell)
    for name, labels, place in (("by_effort", efforts, effort), ("by_source", sources, source)):
        groups = {str(label): place == number for number, label in enumerate(labels)}
        result[name] = {label: _group(outcomes.take(rows), cell[rows]) for label, rows in groups.items()}
    return result


def _group(outcomes: Outcomes, cell: np.ndarray) -> dict[str, Any]:
    """`cell`: a number for the cell of each rollout."""
    clean, correct = outcomes.clean, int(outcomes.correct.sum())
    thought = outcomes.thinking_length > 0
    total = int(outcomes.total_tokens.sum())
    return {
        "rollouts": len(outcomes),
        "cells": len(np.unique(cell)),
        **{name: int(getattr(outcomes, name).sum()) for name in COUNT_MEASURES + OTHER_COUNTS},
        "with_thinking": int(thought.sum()),
        "total_tokens": total,
        "thinking_tokens": int(outcomes.thinking_length.sum()),
        "tokens_per_correct": total / correct if correct else None,
        "clean_length": _mean(outcomes.thinking_length[clean]),
        "logprob": _mean(outcomes.logprob[thought]),
        "top20_entropy": _mean(outcomes.top_entropy[thought]),
        "top20_mass": _mean(outcomes.top_mass[thought]),
        "cjk_share": float(np.median(outcomes.cjk_share[clean])) if clean.any() else None,
    }


def _mean(values: np.ndarray) -> float | None:
    """None over nothing, and if any is not finite."""
    return mean(values) if len(values) and np.isfinite(values).all() else None
