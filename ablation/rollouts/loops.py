"""Does the thinking repeat? Two checks on its token ids, over a whole stage at once.

Periodic loop: a stretch in which every token equals the one g tokens before (g as small as possible), so it repeats a unit
of g tokens. It counts if it is at least `min_tokens` long and holds the unit at least `max(min_repeats, 2 + short_unit / g^2)`
times: short units (dots, digits, table rules) need many repeats, long blocks three. Any phase, cut anywhere, no largest period.

Strong loop: the share of `gram`-token windows that occurred before in the same thinking is at least `repeated_share`. It
catches repeats with small changes and nested units. It needs 4 * gram windows, so that short regular text does not count.
With `novelty` in the plan the strong check is that of `rollouts.novelty` instead, on the text.

Stretches with a unit of up to `SHORT` tokens are found by comparing every token with the one g before, for each g. Longer units
are found from windows: where windows of k tokens in a row have their previous occurrence g tokens back, their tokens are part of
a stretch with period g, which is followed to both of its ends. Small k finds short stretches, large k those whose unit itself
repeats shorter pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from ablation.plan.model import Loops
from ablation.rollouts.novelty import novelty
from ablation.rollouts.windows import Windows

GRAMS = (8, 32, 128, 512, 2048)
SHORT = 32
BLOCK = 65_536
"""Tokens that are looked at together: a block takes sequences while it has fewer, so that it fits into the cache."""
STEP = 64
"""Tokens by which a stretch is followed at a time."""
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


def find_loops(token_ids: np.ndarray, offsets: np.ndarray, loops: Loops, texts: Iterable[str] = ()) -> LoopReport:
    """Loops in N packed token sequences: sequence i is `token_ids[offsets[i]:offsets[i + 1]]`. O(T log T) time.

    `texts` are theirs, and read only where the plan asks for novelty.
    """
    offsets = np.asarray(offsets, dtype=np.int64)
    rows = len(offsets) - 1
    report = LoopReport(
        periodic=np.zeros(rows, dtype=bool),
        start=np.zeros(rows, dtype=np.int64),
        period=np.zeros(rows, dtype=np.int64),
        length=np.zeros(rows, dtype=np.int64),
        repeated_share=np.zeros(rows),
        strong=np.zeros(rows, dtype=bool),
    )
    first = 0
    while first < rows:
        after = max(first + 1, int(np.searchsorted(offsets, offsets[first] + BLOCK, side="right")) - 1)
        ids = np.ascontiguousarray(token_ids[offsets[first] : offsets[after]])
        _look(ids, offsets[first : after + 1] - offsets[first], loops, report, slice(first, after))
        first = after
    if loops.novelty is not None:
        limit = Fraction(str(loops.novelty))
        report.strong[:] = [(new := novelty(text)) is not None and new < limit for text in texts]
    return report


def _look(ids: np.ndarray, offsets: np.ndarray, loops: Loops, report: LoopReport, rows: slice) -> None:
    """Fill the `rows` of `report` from one block."""
    lengths = np.diff(offsets)
    row_T = np.repeat(np.arange(len(lengths)), lengths)
    found = [_short_units(ids, offsets, row_T, loops)]
    windows = Windows(ids, row_T, offsets[1:][row_T])
    longest, k = int(lengths.max(initial=0)), GRAMS[0]
    hashes = windows.all_of(k, loops.gram)
    hash_T, position = hashes[k], windows.whole(k)
    again = None  # where a window of `gram` tokens is repeated
    while k < longest:
        if k in GRAMS:
            repeats = windows.repeats(hash_T, position)
            start, count, gap = _runs(repeats.position_W, repeats.gap_W)
            long = gap > SHORT
            found.append(_long_units(ids, offsets, row_T, (start[long], (start + count + k - 1)[long], gap[long]), loops))
            position = repeats.shared
            if k == loops.gram:
                again = repeats.position_W
        if not len(position) or k >= GRAMS[-1]:
            break
        hash_T, position = windows.doubled(hash_T, k, position)
        k *= 2
    start, period, stretch = np.concatenate(found, axis=1)
    row = row_T[start] if len(ids) else start
    # the longest of each row; of equally long ones the shortest unit, then the earliest
    order = np.lexsort((start, period, -stretch, row))
    row, best = np.unique(row[order], return_index=True)
    best = order[best]
    report.start[rows][row] = start[best] - offsets[row]
    report.period[rows][row], report.length[rows][row] = period[best], stretch[best]
    report.periodic[rows][row] = True
    counts = np.maximum(lengths - loops.gram + 1, 0)
    if counts.any():
        if again is None:
            again = windows.repeats(hashes[loops.gram], windows.whole(loops.gram)).position_W
        share = np.bincount(row_T[again], minlength=len(lengths)) / np.maximum(counts, 1)
        report.repeated_share[rows] = share
        report.strong[rows] = (counts >= STRONG_WINDOWS * loops.gram) & (share >= loops.repeated_share)


def _enough(stretch: np.ndarray, period: np.ndarray, loops: Loops) -> np.ndarray:
    """Whether stretches with these periods count; length / g >= 2 + short_unit / g^2, without a division."""
    enough = (stretch >= loops.min_tokens) & (stretch >= loops.min_repeats * period)
    return enough & ((stretch - 2 * period) * period >= loops.short_unit)


def _long_units(
    ids: np.ndarray, offsets: np.ndarray, row_T: np.ndarray, pieces: tuple[np.ndarray, np.ndarray, np.ndarray], loops: Loops
) -> np.ndarray:
    """(first token, period, length) of the stretches that count and hold one of `pieces`, int64 [3, S].

    Pieces are (first token, the one after the last, gap) [P]: tokens that equal the ones a gap before, which is the smallest
    period of the stretch around them. A window inside of the unit that occurs twice in it ends a piece, but not the stretch.
    """
    begin, end, gap = pieces
    first, after = offsets[row_T[begin]] + gap, offsets[row_T[begin] + 1]
    goes_on = (begin > first) & (ids[begin - 1] == ids[begin - 1 - gap])
    goes_on |= (end < after) & (ids[np.minimum(end, len(ids) - 1)] == ids[np.minimum(end, len(ids) - 1) - gap])
    left = np.flatnonzero(goes_on | _enough(end - begin + gap, gap, loops))
    group = row_T[begin] * (len(ids) + 1) + gap
    left = left[np.lexsort((begin[left], group[left]))]
    found = [np.zeros((3, 0), dtype=np.int64)]
    while len(left):
        firsts = np.append(True, np.diff(group[left]) != 0)
        one = left[firsts]  # of each row and gap: what lies in its stretch needs no look of its own
        start = _followed(ids, begin[one], gap[one], first[one], -1)
        stop = _followed(ids, end[one], gap[one], after[one], 1)
        keep = _enough(stop - start + gap[one], gap[one], loops)
        found.append(np.stack([start - gap[one], gap[one], stop - start + gap[one]])[:, keep])
        left = left[begin[left] >= stop[np.cumsum(firsts) - 1]]
    return np.concatenate(found, axis=1)


def _followed(ids: np.ndarray, edge: np.ndarray, gap: np.ndarray, bound: np.ndarray, way: int) -> np.ndarray:
    """`edge` [P], moved by `way` for as long as the next token equals the one `gap` before it, at most to `bound`."""
    edge, going = edge.copy(), np.arange(len(edge))
    steps = np.arange(STEP) * way - (way < 0)
    while len(going):
        place = edge[going, None] + steps
        inside = place < bound[going, None] if way > 0 else place >= bound[going, None]
        place = np.where(inside, place, gap[going, None])
        same = inside & (ids[place] == ids[place - gap[going, None]])
        moved = np.where(same.all(axis=1), STEP, np.argmin(same, axis=1))
        edge[going] += way * moved
        going = going[moved == STEP]
    return edge


def _short_units(ids: np.ndarray, offsets: np.ndarray, row_T: np.ndarray, loops: Loops) -> np.ndarray:
    """(first token, period, length) of the stretches with a unit of at most `SHORT` tokens that count, int64 [3, S]."""
    shortest = {
        g: max(1, max(loops.min_tokens, loops.min_repeats * g, 2 * g + -int(-loops.short_unit // g)) - g)
        for g in range(1, min(SHORT, len(ids) - 1) + 1)
    }
    periods, taken = _candidates(ids, row_T, shortest)
    ids, row_T = ids[taken], row_T[taken]
    found = [np.zeros((3, 0), dtype=np.int64)]
    for g in periods:
        same_T = (ids[g:] == ids[:-g]) & (row_T[g:] == row_T[:-g])
        edges = np.flatnonzero(np.diff(same_T, prepend=False, append=False))
        begin, stretch = edges[::2], edges[1::2] - edges[::2] + g
        keep = _enough(stretch, np.array(g), loops) & (stretch - g >= shortest[g])
        begin, stretch = begin[keep], stretch[keep]
        for p in _parts(g):
            unit = ~_has_period(ids, begin, stretch, p)
            begin, stretch = begin[unit], stretch[unit]
        found.append(np.stack([taken[begin], np.full(len(begin), g), stretch]))
    return np.concatenate(found, axis=1)


def _candidates(ids: np.ndarray, row_T: np.ndarray, shortest: dict[int, int]) -> tuple[list[int], np.ndarray]:
    """The periods g, and the tokens of the sequences, among which any `shortest[g]` tokens in a row can equal the ones g before.

    Most sequences have none, and are not looked at closely.
    """
    low_T = ids.astype(np.uint8)  # a quarter of the memory to compare; what is equal here is looked at again
    periods, rows = [], np.zeros(row_T[-1] + 1 if len(row_T) else 0, dtype=bool)
    for g, least in shortest.items():
        bits = np.packbits(low_T[g:] == low_T[:-g])
        if least >= 15:  # so many ones in a row hold a whole byte of ones wherever they begin
            full = np.flatnonzero(bits == 255)
        elif least >= 7:  # half a byte
            full = np.flatnonzero((bits & 0xF0 == 0xF0) | (bits & 0x0F == 0x0F))
        else:
            return list(shortest), np.arange(len(ids))
        if len(full):
            periods.append(g)
            rows[row_T[8 * full]] = True
            rows[row_T[np.minimum(8 * full + 4, len(row_T) - 1)]] = True
    return periods, np.flatnonzero(rows[row_T])


@cache
def _parts(g: int) -> tuple[int, ...]:
    """g / q for each prime q that divides g.

    A stretch of at least 2g tokens with period g and a smaller one has their greatest common divisor as a period (Fine and Wilf
    1965), so it has one of these.
    """
    return tuple(g // q for q in range(2, g + 1) if g % q == 0 and all(q % d for d in range(2, q)))


def _has_period(ids: np.ndarray, begin: np.ndarray, stretch: np.ndarray, p: int) -> np.ndarray:
    """Whether every token of each stretch of more than p tokens equals the one p before, bool [S]."""
    if not len(begin):
        return np.zeros(0, dtype=bool)
    ends = np.cumsum(stretch - p)
    starts = ends - (stretch - p)
    place = np.arange(ends[-1]) + np.repeat(begin - starts, stretch - p)
    return np.logical_and.reduceat(ids[place] == ids[place + p], starts)


def _runs(position: np.ndarray, gap: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first position, count, gap) of the maximal runs of consecutive positions with one gap.

    A run cannot cross rows: for k >= 2 the last k - 1 tokens of a row start no window.
    """
    if not len(position):
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    new = np.flatnonzero(np.concatenate([[True], (np.diff(position) != 1) | (np.diff(gap) != 0)]))
    return position[new], np.diff(np.append(new, len(position))), gap[new]
