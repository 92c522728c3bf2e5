"""The share of CJK letters in a text.

CJK: characters whose Unicode script or script extension is Han, Hiragana, Katakana, Hangul or Bopomofo and that are letters
(L) or letter numbers (Nl), so Han extensions, iteration marks and the ideographic zero count. Denominator: all letters and
these letter numbers. Spaces, digits, punctuation, symbols and marks are in neither; a text without letters has share 0. Code
and formulas are counted like any other text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import regex

from ablation.rollouts.columns import Texts

_SCRIPTS = "".join(rf"\p{{scx={name}}}" for name in ("Han", "Hiragana", "Katakana", "Hangul", "Bopomofo"))
_CJK = regex.compile(rf"[[{_SCRIPTS}]&&[\p{{L}}\p{{Nl}}]]", regex.V1)
_LETTER = regex.compile(r"\p{L}")


_UNKNOWN, _OTHER, _LETTER_ONLY, _CJK_LETTER = range(4)
_kinds = np.zeros(0x110000, dtype=np.uint8)  # of each code point; _UNKNOWN until it is first met


_TOGETHER = 1 << 18
"""Characters that are looked at together, so that short texts cost little more than long ones."""


def cjk_share(texts: Sequence[str]) -> np.ndarray:
    """Share of CJK letters among the letters of each of N texts, float64 [N]. Linear in their length."""
    shares = np.zeros(len(texts))
    # ASCII has no CJK letter
    if isinstance(texts, Texts):
        rows, sizes, joined = texts.beyond_ascii, texts.sizes, texts.joined
    else:
        rows = np.array([row for row, text in enumerate(texts) if not text.isascii()], dtype=np.int64)
        sizes = np.array([len(text) for text in texts], dtype=np.int64)

        def joined(rows: np.ndarray) -> tuple[str, np.ndarray]:
            return "".join([texts[row] for row in rows]), sizes[rows]

    before = np.cumsum(sizes[rows]) - sizes[rows]
    for block in np.split(rows, np.flatnonzero(np.diff(before // _TOGETHER)) + 1) if len(rows) else ():
        shares[block] = _shares(*joined(block))
    return shares


def _shares(text: str, lengths: np.ndarray) -> np.ndarray:
    """The same of texts of at least one character, one after the other."""
    kinds, starts = _kinds_of(text), np.cumsum(lengths) - lengths
    letters, cjk = (np.add.reduceat(kinds >= kind, starts, dtype=np.int64) for kind in (_LETTER_ONLY, _CJK_LETTER))
    return cjk / np.maximum(1, letters)


def _kinds_of(text: str) -> np.ndarray:
    if text.isascii():
        points = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    else:
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kinds = _kinds[points]
    if not kinds.all():
        for point in np.unique(points[kinds == _UNKNOWN]):
            letter = chr(point)
            _kinds[point] = _CJK_LETTER if _CJK.match(letter) else _LETTER_ONLY if _LETTER.match(letter) else _OTHER
        kinds = _kinds[points]
    return kinds


def visible_cjk(texts: Sequence[str]) -> np.ndarray:
    """Whether each of N texts has a CJK letter, bool [N]."""
    return np.array([_CJK.search(text) is not None for text in texts], dtype=bool)
