"""Does the thinking repeat? Two checks on its token ids, over a whole stage at once.

Periodic loop: a stretch in which every token equals the one g tokens before (g as small as possible), so it repeats a unit
of g tokens. It counts if it is at least `min_tokens` long and holds the unit at least `max(min_repeats, 2 + short_unit / g^2)`
times: short units (dots, digits, table rules) need many repeats, long blocks three. Any phase, cut anywhere, no largest period.

Strong loop: the share of `gram`-token windows that occurred before in the same thinking is at least `repeated_share`. It
catches repeats with small changes and nested units. It needs 4 * gram windows, so that short regular text does not count.

Stretches are found from k-grams: where R windows of k tokens in a row have their previous occurrence g tokens back, a stretch
of R + k - 1 + g tokens has period g. Small k finds short stretches, large k those whose unit itself repeats shorter pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablation.plan.model import Loops

GRAMS = (2, 8, 32, 128, 512, 2048)
STRONG_WINDOWS = 4
"""A strong loop needs this many times `gram` windows."""


@dataclass(frozen=True)
class LoopReport:
    """The longest periodic loop of each of N rollouts (zeros where there is none), and the strong check."""

    periodic: np.ndarray  # bool [N]
    start: np.ndarray  # int64 [N], in tokens from the start of the thinking
    period: np.ndarray  # int64 [N], tokens of the unit
    length: np.ndarray  # int64 [N], tokens of the stretch
    repeated_share: np.ndarray  # float64 [N], of `gram`-token windows; 0 if there is no window
    strong: np.ndarray  # bool [N]

    @property
    def repeats(self) -> np.ndarray:
        """Times that the unit occurs, a cut one counted in part, float64 [N]."""
        return self.length / np.maximum(self.period, 1)


def find_loops(token_ids: np.ndarray, offsets: np.ndarray, loops: Loops) -> LoopReport:
    """Loops in N packed token sequences: sequence i is `token_ids[offsets[i]:offsets[i + 1]]`. O(T log T) time."""
    offsets = np.asarray(offsets, dtype=np.int64)
    rows, lengths = len(offsets) - 1, np.diff(offsets)
    row_of = np.repeat(np.arange(rows), lengths)
    longest = int(lengths.max(initial=0))
    start, period, length = (np.zeros(rows, dtype=np.int64) for _ in range(3))
    among = np.arange(len(token_ids))
    hashes = _Hashes(token_ids)
    for k in (k for k in GRAMS if k < longest):
        # a window that occurs once cannot hold or begin a longer one that occurs twice, so each k looks at fewer positions
        position, gap, among = _gaps(hashes.grams(k), offsets, row_of, k, among)
        first, count, gap = _runs(position, gap)
        stretch = count + k - 1 + gap
        # length / g >= 2 + short_unit / g^2, without a division
        enough = (stretch >= loops.min_tokens) & (stretch >= loops.min_repeats * gap)
        enough &= (stretch - 2 * gap) * gap >= loops.short_unit
        first, stretch, gap = first[enough], stretch[enough], gap[enough]
        row = row_of[first]
        # the longest of each row; of equally long ones the shortest unit, then the earliest
        order = np.lexsort((first, gap, -stretch, row))
        row, best = np.unique(row[order], return_index=True)
        best = order[best]
        longer = stretch[best] > length[row]
        row, best = row[longer], best[longer]
        start[row], period[row], length[row] = first[best] - gap[best] - offsets[row], gap[best], stretch[best]
    windows = np.maximum(lengths - loops.gram + 1, 0)
    share = np.zeros(rows)
    if windows.any():
        position, _, _ = _gaps(_Hashes(token_ids).grams(loops.gram), offsets, row_of, loops.gram, np.arange(len(token_ids)))
        share = np.bincount(row_of[position], minlength=rows) / np.maximum(windows, 1)
    strong = (windows >= STRONG_WINDOWS * loops.gram) & (share >= loops.repeated_share)
    return LoopReport(periodic=length > 0, start=start, period=period, length=length, repeated_share=share, strong=strong)


def _gaps(
    hashes: np.ndarray, offsets: np.ndarray, row_of: np.ndarray, k: int, among: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the sorted positions `among`: (those whose k-gram occurred before in its row, tokens back to the last time, those
    whose k-gram occurs more than once in its row). All sorted by position.
    """
    position = among[among + k <= offsets[row_of[among] + 1]]
    key = _mix(hashes[position] ^ _mix(row_of[position].astype(np.uint64)))
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    now, before = order[same + 1], order[same]
    gap = np.zeros(len(position), dtype=np.int64)
    gap[now] = position[now] - position[before]
    shared = gap > 0
    shared[before] = True
    return position[gap > 0], gap[gap > 0], position[shared]


def _runs(position: np.ndarray, gap: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first position, count, gap) of the maximal runs of consecutive positions with one gap.

    A run cannot cross rows: for k >= 2 the last k - 1 tokens of a row start no window.
    """
    if not len(position):
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    new = np.flatnonzero(np.concatenate([[True], (np.diff(position) != 1) | (np.diff(gap) != 0)]))
    return position[new], np.diff(np.append(new, len(position))), gap[new]


class _Hashes:
    """64-bit hashes of the k tokens from each position on, built by doubling; meaningless where fewer than k follow."""

    def __init__(self, token_ids: np.ndarray) -> None:
        self.size, self.power = 1, _mix(token_ids.astype(np.uint64))  # hashes of `size`-grams

    def grams(self, k: int) -> np.ndarray:
        """Must be asked for growing powers of two, or once for any k. O(T log k)."""
        result, have = None, 0
        power, size = self.power, self.size
        while size <= k:
            if k & size:
                piece = _ahead(power, have)
                result, have = piece if result is None else _mix(result) ^ piece, have + size
            if size * 2 > k:
                break
            power = _mix(_mix(power) ^ _ahead(power, size))
            size *= 2
        self.power, self.size = power, size
        assert result is not None
        return result


def _ahead(values: np.ndarray, by: int) -> np.ndarray:
    """`values[i + by]` at each i, zero beyond the end."""
    if by == 0:
        return values
    shifted = np.zeros_like(values)
    shifted[:-by] = values[by:]
    return shifted


def _mix(x: np.ndarray) -> np.ndarray:
    """The SplitMix64 finalizer (Steele, Lea and Flood 2014): a bijection that spreads every bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
