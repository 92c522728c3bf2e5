"""Where one thinking repeats itself: the windows that make up the share by which a strong loop is told.

`loops.find_loops` counts them for a whole stage; this marks them in the one rollout that somebody reads.
"""

from __future__ import annotations

import numpy as np


def repeated_tokens(ids: np.ndarray, gram: int) -> np.ndarray:
    """Whether each of the T tokens lies in a window of `gram` tokens that occurred before, bool [T].

    The windows are those of `LoopReport.repeated_share`. A window may overlap the one that it repeats. O(T * gram).
    """
    ids = np.ascontiguousarray(ids, dtype=np.int32)
    inside_T = np.zeros(len(ids), dtype=bool)
    data, size, seen = ids.tobytes(), ids.itemsize, set()
    for at in range(len(ids) - gram + 1):
        window = data[at * size : (at + gram) * size]
        if window in seen:
            inside_T[at : at + gram] = True
        else:
            seen.add(window)
    return inside_T


def stretches(inside_T: np.ndarray) -> list[tuple[int, int]]:
    """[first, one after the last) of each run of true values, in order."""
    edges = np.flatnonzero(np.diff(inside_T, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def longest(found: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The longest of stretches, the earliest of equally long ones; None if there is none."""
    return max(found, key=lambda one: (one[1] - one[0], -one[0]), default=None)
