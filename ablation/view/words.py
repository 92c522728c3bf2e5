"""Numbers and names as pages show them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

NOTHING = "–"


def figure(value: Any, digits: int = 3) -> str:
    """A number; whole ones with separators, a missing one as a dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "\N{MINUS SIGN}")
    if abs(value) < 10.0**-digits / 2:
        return f"{0:.{digits}f}"
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def signed(value: Any, digits: int = 3) -> str:
    shown = figure(value, digits)
    return shown if shown == NOTHING or shown.startswith("\N{MINUS SIGN}") or not value else f"+{shown}"


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
