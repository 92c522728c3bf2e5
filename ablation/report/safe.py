"""Foreign text made safe to show: nothing in it that a terminal would obey or a page would hide."""

from __future__ import annotations

import re
from typing import Any

from ablation.unseen import UNSEEN

_MARK = "\N{REPLACEMENT CHARACTER}"
# C0 and C1 control characters, with which escape sequences begin; what ends a line for some readers alone; halves of a
# surrogate pair, which JSON can hold and no page, file or terminal can.
_CONTROL = [code for code in (*range(0x00, 0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)]
_UNSAFE = dict.fromkeys((*_CONTROL, 0x2028, 0x2029, *range(0xD800, 0xE000), *(code for codes in UNSEEN for code in codes)), _MARK)
# Joiners belong to scripts and emoji; beside an ASCII character or an end they only hide.
_LONE_JOINER = re.compile("(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])")


def clean(value: Any) -> Any:
    """`value` with every text in it (in lists, tuples and mappings, too) made safe to show."""
    if isinstance(value, str):
        return _LONE_JOINER.sub(_MARK, value.translate(_UNSAFE))
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, (list, tuple)) else value


def one_line(text: str) -> str:
    """`text` made safe to show, as one line: nobody writes a line of their own into what a terminal says."""
    return " ".join(clean(text).split())
