"""Characters that a page hides: those without a width, and those that turn the order of the letters around them."""

from __future__ import annotations

UNSEEN = (
    *(range(code, code + 1) for code in (0xAD, 0x34F, 0x61C, 0x180E, 0x200B, 0x3164, 0xFEFF, 0xFFA0)),
    range(0x115F, 0x1161),
    range(0x17B4, 0x17B6),
    range(0x200E, 0x2010),
    range(0x202A, 0x202F),
    range(0x2060, 0x2065),
    range(0x2066, 0x2070),
    range(0xFFF9, 0xFFFC),
    range(0xE0000, 0xE0080),
)
"""Ranges of code points. The joiners U+200C and U+200D are not here: scripts and emoji are written with them."""
