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

_SCRIPTS = "".join(rf"\p{{scx={name}}}" for name in ("Han", "Hiragana", "Katakana", "Hangul", "Bopomofo"))
_CJK = regex.compile(rf"[[{_SCRIPTS}]&&[\p{{L}}\p{{Nl}}]]", regex.V1)
_LETTER = regex.compile(r"\p{L}")


_UNKNOWN, _OTHER, _LETTER_ONLY, _CJK_LETTER = range(4)
_kinds = np.zeros(0x110000, dtype=np.uint8)  # of each code point; _UNKNOWN until it is first met


def cjk_share(texts: Sequence[str]) -> np.ndarray:
    """Share of CJK letters among the letters of each of N texts, float64 [N]. Linear in their length."""
    shares = np.zeros(len(texts))
    for row, text in enumerate(texts):
        counts = np.bincount(_kinds_of(text), minlength=4)
        shares[row] = counts[_CJK_LETTER] / max(1, counts[_LETTER_ONLY] + counts[_CJK_LETTER])
    return shares


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
