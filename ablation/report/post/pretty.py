"""Numbers set as numbers: a true minus, a times sign, a dash in ranges. Only for texts that are numbers of ours."""

from __future__ import annotations

import re

MINUS, TIMES, RANGE = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
_RANGE = re.compile(r"(?<=[0-9])-(?=[0-9])")
_MINUS = re.compile(r"(?<![0-9A-Za-z])-(?=[0-9])")
_TIMES = re.compile(r"(?<=[0-9])x(?![A-Za-z])")
_AT_MOST = {"<=": "\N{LESS-THAN OR EQUAL TO}", ">=": "\N{GREATER-THAN OR EQUAL TO}"}


def pretty(text: str) -> str:
    """`0.74x (0.69-0.79)` -> the same with a times sign and an en dash; `-7` with a minus sign; `<=` as one sign."""
    if text == "-":
        return RANGE
    text = _MINUS.sub(MINUS, _RANGE.sub(RANGE, text))
    for sign, better in _AT_MOST.items():
        text = text.replace(sign, better)
    return _TIMES.sub(TIMES, text)
