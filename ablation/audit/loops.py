"""Does a sequence of tokens repeat? The two definitions of runs/README.md, decided in another way than the engine does.

Periodic: a stretch with period g that holds its unit at least twice covers two neighbouring multiples of g, *anchors*, with equal
tokens. So for each g only the anchors are compared; where enough neighbours in a row are equal, the stretch is measured token by
token. All sequences lie in one flat array with a separator of its own after each, which equals nothing.

Strong: windows that occurred before are all windows less the distinct ones.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

LAST_WORDS = 200
STRONG_WINDOWS = 4
"""A strong loop needs this many times `gram` windows."""


def periodic(sequences: list[np.ndarray], loops: dict[str, Any]) -> list[bool]:
    """Whether each sequence has a periodic loop."""
    found = [False] * len(sequences)
    longest = max(map(len, sequences), default=0)
    if not longest:
        return found
    flat = np.concatenate([part for row, ids in enumerate(sequences) for part in (ids.astype(np.int64), np.array([-1 - row]))])
    owner = np.repeat(np.arange(len(sequences)), [len(ids) + 1 for ids in sequences])
    starts = np.concatenate([[0], np.cumsum([len(ids) + 1 for ids in sequences])])
    for g in range(1, longest // max(2, loops["min_repeats"]) + 1):
        need = needed(g, loops)
        if need > longest:
            continue
        anchors, rows = flat[::g], owner[::g]
        equal = np.concatenate([[False], (anchors[1:] == anchors[:-1]) & (rows[1:] == rows[:-1]), [False]])
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        begin, end = edges[::2], edges[1::2]
        # pairs of neighbouring anchors that a stretch of `need` tokens covers wherever it begins
        for place in np.flatnonzero(end - begin >= need // g - 1):
            row = int(rows[begin[place]])
            low, high = int(starts[row]), int(starts[row + 1]) - 1
            at, last = int(begin[place]) * g - low, int(end[place]) * g - low
            while not found[row] and at < last:
                start, stop = _stretch(flat[low:high], at, g)
                found[row] = stop - start >= need and _primitive(flat[low + start : low + start + g])
                at += max(1, ceil((stop - g - at) / g)) * g  # the next anchor outside this stretch
    return found


def needed(g: int, loops: dict[str, Any]) -> int:
    """Fewest tokens of a stretch with a unit of g tokens that counts: repeats >= max(min_repeats, 2 + short_unit / g^2)."""
    return max(loops["min_tokens"], loops["min_repeats"] * g, ceil(2 * g + Fraction(repr(float(loops["short_unit"]))) / g))


def _stretch(ids: np.ndarray, at: int, g: int) -> tuple[int, int]:
    """The longest start:stop around `at` in which every token equals the one g before, where ids[at] == ids[at + g]."""
    same = ids[g:] == ids[:-g]
    after = np.flatnonzero(~same[at:])
    before = np.flatnonzero(~same[:at])
    stop = at + int(after[0]) if len(after) else len(same)
    start = int(before[-1]) + 1 if len(before) else 0
    return start, stop + g


def _primitive(unit: np.ndarray) -> bool:
    """Whether a unit is no repetition of a shorter one."""
    g = len(unit)
    return not any(g % d == 0 and np.array_equal(unit[d:], unit[:-d]) for d in range(1, g // 2 + 1))


def strong(ids: np.ndarray, loops: dict[str, Any], text: str = "") -> bool:
    """Whether the share of windows that occurred before is high enough, or, where the plan says so, too few words are new."""
    if loops.get("novelty") is not None:
        return _stale(text, Fraction(repr(float(loops["novelty"]))))
    gram = loops["gram"]
    windows = len(ids) - gram + 1
    if windows < STRONG_WINDOWS * gram:
        return False
    data, width = np.ascontiguousarray(ids).tobytes(), ids.itemsize
    distinct = len({data[first : first + gram * width] for first in range(0, windows * width, width)})
    return Fraction(windows - distinct, windows) >= Fraction(repr(float(loops["repeated_share"])))


def _stale(text: str, limit: Fraction) -> bool:
    """By where each group of four words, and each number behind its two numbers, is met first."""
    words = _words(text.lower())
    if len(words) < LAST_WORDS:
        return False
    kinds = ["#" if word[0].isdecimal() else word for word in words]
    first_gram: dict[str, int] = {}
    first_fact: dict[str, int] = {}
    numbers: list[str] = ["", ""]
    fresh = []
    for place, (word, kind) in enumerate(zip(words, kinds, strict=True)):
        gram = "\0".join(kinds[max(place - 3, 0) : place + 1])
        is_new = first_gram.setdefault(gram, place) == place
        if kind == "#":
            is_new |= first_fact.setdefault("\1".join((gram, *numbers[-2:], word)), place) == place
            numbers.append(word)
        fresh.append(is_new)
    return Fraction(sum(fresh[-LAST_WORDS:]), LAST_WORDS) < limit


def _words(text: str) -> list[str]:
    """Numbers, runs of letters, and one by one the characters of scripts without blanks."""
    words: list[str] = []
    before = ""  # kind of the word that may go on: a number (n), letters (l), or none
    for place, char in enumerate(text):
        if char.isdecimal():
            kind = "n"
        elif 0x2E80 <= ord(char) <= 0xFFDC or 0x20000 <= ord(char) <= 0x3FFFF:
            kind = "one"
        elif before == "n" and char in ".," and text[place + 1 : place + 2].isdecimal():
            kind = "n"
        else:
            kind = "l" if char.isalnum() else ""
        if kind in ("n", "l") and kind == before:
            words[-1] += char
        elif kind:
            words.append(char)
        before = kind
    return words
