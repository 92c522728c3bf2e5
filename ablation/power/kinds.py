"""The kinds of rollout that a simulated study is made of: 12, so that every count of a rule is a sum of kinds.

A kind is (truncated, looping, answer). The order is from good to bad: a rollout's luck is one number in [0, 1), and a lower one
never gives a worse kind, so two models that share luck differ by their rates alone.
"""

from __future__ import annotations

import numpy as np

ANSWERS = ("correct", "incorrect", "none")
CUBE = (2, 2, len(ANSWERS))
"""Shape of a cell's kinds: truncated, looping, answer."""
KINDS = int(np.prod(CUBE))

_truncated, _looping, _answer = (axis.ravel() for axis in np.indices(CUBE))
MEMBERS = {
    "correct": _answer == 0,
    "clean": (_answer == 0) & (_truncated == 0) & (_looping == 0),
    "truncated": _truncated == 1,
    "looping": _looping == 1,
    "truncated_or_looping": (_truncated == 1) | (_looping == 1),
    "no_answer": _answer == 2,
}
"""Measure -> which kinds it counts, bool [12]: the definitions of `rollouts.outcomes`."""
COUNTS_OF_KINDS = np.stack(list(MEMBERS.values()), axis=1).astype(np.int64)
"""int [12, 6]: kinds @ this = counts, in the order of `MEMBERS`."""


def kind(truncated: bool, looping: bool, answer: str) -> int:
    """Index of a kind."""
    return int(np.ravel_multi_index((int(truncated), int(looping), ANSWERS.index(answer)), CUBE))
