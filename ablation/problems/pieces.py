"""Which text each sampled token stands for, where the tokenizer is at hand. Sampled text itself is never made from this."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
_CONTEXT = 6
"""Tokens that are decoded before a token, so that what it adds does not depend on where a text begins."""


def token_pieces(decode: Decode, ids: Sequence[int]) -> list[str]:
    """The text that each of the N tokens adds to that of the ones before it. A character of several tokens is the last one's."""
    pieces: list[str] = []
    before = read = 0
    for at in range(len(ids)):
        known, now = decode(ids[before:read]), decode(ids[before : at + 1])
        if len(now) > len(known) and not now.endswith("\N{REPLACEMENT CHARACTER}"):
            pieces.append(now[len(known) :])
            before, read = max(0, at + 1 - _CONTEXT), at + 1
            while before and decode(ids[before:read]).startswith("\N{REPLACEMENT CHARACTER}"):
                before -= 1  # not in the middle of a character
        else:
            pieces.append("")
    return pieces


def aligned(pieces: Sequence[str], text: str) -> bool:
    """Whether the pieces together are `text`, but for blanks at its ends."""
    return "".join(pieces).strip() == text.strip()
