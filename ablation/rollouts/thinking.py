"""Where thinking starts and ends, by token ids alone: decoded text is never searched for tags.

Thinking starts at token 0 if the rendered prompt leaves it open, else after the first open token; without either there is
none. It ends before the first close token after its start. If that never comes, every token that follows is thinking (an
end token included) and there is no visible answer. Neither tag counts as thinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ablation.rollouts.stage import Stage

_BLOCK = 1 << 15
"""Tokens that are summed together, so that they stay in the processor's cache."""


@dataclass(frozen=True)
class Span:
    """Thinking is `token_ids[start:stop]`."""

    start: int
    stop: int
    opened: bool
    closed: bool

    @property
    def answer_start(self) -> int:
        """First token of the visible answer; the number of tokens if there is none."""
        return self.stop + 1 if self.closed else self.stop if self.opened else 0


def thinking_span(token_ids: Sequence[int], *, prompt_opens_thinking: bool, open_id: int, close_id: int) -> Span:
    """The thinking of one rollout."""
    ids = list(token_ids)
    if prompt_opens_thinking:
        start = 0
    elif open_id in ids:
        start = ids.index(open_id) + 1
    else:
        return Span(0, 0, opened=False, closed=False)
    if close_id in ids[start:]:
        return Span(start, ids.index(close_id, start), opened=True, closed=True)
    return Span(start, len(ids), opened=True, closed=False)


@dataclass(frozen=True)
class Thinking:
    """The thinking of N rollouts, packed: rollout i's is `take[offsets[i]:offsets[i + 1]]`."""

    opened: np.ndarray  # bool [N]
    closed: np.ndarray  # bool [N]
    start: np.ndarray  # int64 [N], positions in the stage's arrays
    offsets: np.ndarray  # int64 [N + 1]

    @cached_property
    def take(self) -> np.ndarray:
        """Position of each thinking token in the stage's arrays, int64 [thinking tokens]."""
        return np.arange(self.offsets[-1]) + np.repeat(self.start - self.offsets[:-1], self.lengths)

    @property
    def lengths(self) -> np.ndarray:
        """Thinking tokens, tags excluded, int64 [N]."""
        return np.diff(self.offsets)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Mean over each rollout's thinking of a flat per-token array of the stage, float64 [N]; NaN where there is none.

        Each rollout is summed by itself, so the result does not depend on the rows around it; what the first sum lost is
        added back, so the mean of equal numbers is that number.
        """
        means = np.full(len(self.opened), np.nan)
        full = np.flatnonzero(self.lengths)
        if not len(full):
            return means
        start, counts = self.start[full], self.lengths[full]
        blocks = np.unique(np.searchsorted(start, np.arange(start[0], start[-1] + 2 * _BLOCK, _BLOCK)))
        for first, after in pairwise(blocks.tolist()):
            rows = slice(first, after)
            means[full[rows]] = _means(values, start[rows], counts[rows])
        return means


def _means(values: np.ndarray, start: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means of `counts` values from each `start`, sorted and apart. What lies between is summed, too, and left out."""
    edges = np.stack([start, start + counts], axis=1).ravel() - start[0]
    inside = values[start[0] : start[-1] + counts[-1]]
    guesses = np.zeros(len(edges) - 1)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities: what is not finite stays so
        guesses[::2] = guess = np.add.reduceat(inside, edges[:-1])[::2] / counts
        lost = np.add.reduceat(inside - np.repeat(guesses, np.diff(edges)), edges[:-1])[::2] / counts
    return np.where(np.isfinite(guess), guess + lost, guess)


def split(stage: Stage) -> Thinking:
    """The thinking of every rollout of `stage`, which keeps it as `stage.thinking`."""
    begin, end = stage.offsets[:-1], stage.offsets[1:]
    after_open = _first(np.flatnonzero(stage.token_ids == stage.info.think_open_id), begin, end) + 1
    opened = stage.prompt_opens_thinking | (after_open <= end)
    start = np.where(stage.prompt_opens_thinking, begin, np.minimum(after_open, end))
    close = _first(np.flatnonzero(stage.token_ids == stage.info.think_close_id), start, end)
    closed = opened & (close < end)
    lengths = np.where(opened, close - start, 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Thinking(opened=opened, closed=closed, start=start, offsets=offsets)


def _first(positions: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For each row the first of the sorted `positions` in `begin:end`, or `end` if there is none, int64 [N]."""
    padded = np.append(positions, np.iinfo(np.int64).max)
    return np.minimum(padded[np.searchsorted(positions, begin)], end)
