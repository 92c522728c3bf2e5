"""Foreign text made safe for a terminal: nothing in it that a terminal would obey or hide. No package is imported here."""

from __future__ import annotations

from typing import Any

UNSAFE = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x00, 0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}
"""C0 and C1 control characters: escape sequences begin with one of them."""
UNSAFE |= {code: "\N{REPLACEMENT CHARACTER}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Direction marks: they make text read in another order than it is written."""
UNSAFE |= {code: "\N{REPLACEMENT CHARACTER}" for code in range(0xD800, 0xE000)}
"""Halves of a surrogate pair, which JSON can hold and no page, file or terminal can: nothing would be shown at all."""


def clean(value: Any) -> Any:
    """`value` with every text in it (in lists, tuples and mappings, too) made safe to show."""
    if isinstance(value, str):
        return value.translate(UNSAFE)
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, (list, tuple)) else value


def one_line(text: str) -> str:
    """`text` made safe to show, as one line: nobody writes a line of their own into what a terminal says."""
    return " ".join(clean(text).split())
