"""Windows of k tokens that occurred before in their own sequence, for packed sequences that fit into the processor's cache.

Every window has a polynomial hash (modulo 2^64, over tokens mixed to look random), built by doubling. One sort of (hash,
position) brings equal windows together in order of position. A window that occurs once cannot begin or hold a longer one that
occurs twice, so once the short windows are sorted, longer ones are made of those that occur again and of no others.

Shapes: T tokens of the block, W windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_BASE = 0x9E3779B97F4A7C15
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_ROW = np.uint64(0xA24BAED4963EE407)


@dataclass(frozen=True)
class Repeats:
    """Windows of one length that occur more than once in their sequence; positions in the block, sorted."""

    position_W: np.ndarray  # int64: those that occurred before
    gap_W: np.ndarray  # int64: tokens back to the last time
    shared: np.ndarray  # int64: those that occurred before or occur again


class Windows:
    """The windows of a block. `row_T` is the sequence of each token, `end_T` the position in the block where it ends."""

    def __init__(self, token_ids: np.ndarray, row_T: np.ndarray, end_T: np.ndarray) -> None:
        self.token_ids, self.end_T = token_ids, end_T
        self._row_hash_T = (row_T.astype(np.uint64) + np.uint64(1)) * _ROW
        self._bits = np.uint64(max(1, len(token_ids).bit_length()))

    def all_of(self, *lengths: int) -> dict[int, np.ndarray]:
        """Hashes of all windows of each of `lengths`, uint64 [T]; meaningless where a sequence ends before."""
        hash_T, size, power = _mixed(self.token_ids), 1, _BASE
        made: dict[int, tuple[np.ndarray, int]] = {}
        while True:
            for k in set(lengths):
                if k & size:
                    before = made.get(k)
                    made[k] = (
                        (hash_T, size)
                        if before is None
                        else (before[0] * np.uint64(power) + _ahead(hash_T, before[1]), before[1] + size)
                    )
            if size * 2 > max(lengths):
                return {k: one for k, (one, _) in made.items()}
            hash_T = hash_T * np.uint64(power) + _ahead(hash_T, size)
            power = power * power % 2**64
            size *= 2

    def whole(self, k: int) -> np.ndarray:
        """Positions from which k tokens follow in the sequence, int64."""
        return np.flatnonzero(self.end_T >= np.arange(k, len(self.end_T) + k))

    def repeats(self, hash_T: np.ndarray, position: np.ndarray) -> Repeats:
        """What occurs more than once among the windows that begin at `position` (sorted) and have these hashes."""
        bits = self._bits
        mask = (np.uint64(1) << bits) - np.uint64(1)
        key = hash_T[position] ^ self._row_hash_T[position]
        key *= _SPREAD
        key &= ~mask
        key |= position.astype(np.uint64)
        key.sort()
        same = np.flatnonzero((key[1:] ^ key[:-1]) <= mask)
        now, before = (key[same + 1] & mask).astype(np.int64), (key[same] & mask).astype(np.int64)
        gap_T = np.zeros(len(hash_T), dtype=np.int64)
        gap_T[now] = now - before
        again = np.flatnonzero(gap_T)
        gap = gap_T[again]
        gap_T[before] = 1
        return Repeats(again, gap, np.flatnonzero(gap_T))

    def doubled(self, hash_T: np.ndarray, k: int, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From windows of k tokens (a power of two), those at `shared` alone, to windows of 2k: (hashes [T], positions)."""
        alive_T = np.zeros(len(hash_T) + k, dtype=bool)
        alive_T[shared] = True
        position = shared[alive_T[shared + k]]
        position = position[position + 2 * k <= self.end_T[position]]
        power = np.uint64(pow(_BASE, k, 2**64))
        longer_T = np.zeros_like(hash_T)
        longer_T[position] = hash_T[position] * power + hash_T[position + k]
        return longer_T, position


def _ahead(values_T: np.ndarray, by: int) -> np.ndarray:
    """`values[i + by]` at each i, zero beyond the end."""
    shifted_T = np.zeros_like(values_T)
    shifted_T[: max(0, len(values_T) - by)] = values_T[by:]
    return shifted_T


def _mixed(token_ids: np.ndarray) -> np.ndarray:
    """The SplitMix64 finalizer (Steele, Lea and Flood 2014): a bijection that spreads every bit."""
    x = token_ids.astype(np.uint64) + np.uint64(_BASE)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
