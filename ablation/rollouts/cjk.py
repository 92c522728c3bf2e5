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


def cjk_share(texts: Sequence[str]) -> np.ndarray:
    """Share of CJK letters among the letters of each of N texts, float64 [N]."""
    encoded = [np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4") for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in encoded], dtype=np.int64)])
    points = np.concatenate(encoded) if encoded else np.zeros(0, dtype="<u4")
    used = np.unique(points)
    cjk = np.array([_CJK.match(chr(point)) is not None for point in used], dtype=bool)
    letter = np.array([_LETTER.match(chr(point)) is not None for point in used], dtype=bool) | cjk
    place = np.searchsorted(used, points)
    counts = []
    for kind in (cjk, letter):
        total = np.concatenate([[0], np.cumsum(kind[place])]) if len(points) else np.zeros(1, dtype=np.int64)
        counts.append(total[offsets[1:]] - total[offsets[:-1]])
    return counts[0] / np.maximum(counts[1], 1)


def visible_cjk(texts: Sequence[str]) -> np.ndarray:
    """Whether each of N texts has a CJK letter, bool [N]."""
    return np.array([_CJK.search(text) is not None for text in texts], dtype=bool)
