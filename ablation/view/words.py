"""Numbers and names as pages show them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from ablation.report.numbers import fixed, with_sign

NOTHING, MINUS = "–", "\N{MINUS SIGN}"


def figure(value: Any, digits: int = 3) -> str:
    """A number; whole ones with separators, a missing one as a dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    return fixed(value, digits).replace("-", MINUS)


def signed(value: Any, digits: int = 3) -> str:
    """The same with a plus; what rounds to zero is no negative number."""
    if value is None or isinstance(value, bool) or not math.isfinite(value):
        return figure(value, digits)
    text = with_sign(value, digits) if isinstance(value, float) else f"{value:+,}" if value else "0"
    return text.replace("-", MINUS)


def share(value: Any, of: Any) -> str:
    """A count as a share in percent."""
    return NOTHING if value is None or not of else f"{100 * value / of:.1f}%"


def percent(value: Any) -> str:
    return NOTHING if value is None else f"{figure(100 * value, 1)}%"


def yes_no(value: Any) -> str:
    return NOTHING if value is None else "yes" if value else "no"


def tone(label: str) -> str:
    """The look of a label: its first word decides."""
    word = label.split(" ")[0]
    if word in ("STABLE", "REPLICATED", "WIN_VERIFIED", "CONFIRMED", "SELECTED", "RELEASE", "PASSED", "WIN"):
        return "good"
    if word in ("DAMAGED", "NOT_REPLICATED", "NO_WIN", "NOT_CONFIRMED", "NO_RELEASE", "FAILED", "STOPPED", "NONE_ELIGIBLE"):
        return "bad"
    return "open"


def ago(time: str, now: datetime | None = None) -> str:
    """How long ago a time of the journal was."""
    try:
        seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(time)).total_seconds()
    except ValueError:
        return NOTHING
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' * (count != 1)} ago"
    return "just now"
