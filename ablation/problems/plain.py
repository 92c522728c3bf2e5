"""What may be wrong with a value that was read from JSON or Parquet, whatever its field: found before anything works with it."""

from __future__ import annotations

import math
import re
from typing import Any

MAX_DEPTH = 200
HALF = "holds half of a character (a lone surrogate)"
_SURROGATE = re.compile("[\ud800-\udfff]")


def fault(value: Any, depth: int = 0) -> str | None:
    """Why `value` cannot be written as JSON again, in words that follow its name; None if it can."""
    if isinstance(value, str):
        return HALF if _SURROGATE.search(value) else None
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"holds {value}, a number that JSON does not have"
    if depth >= MAX_DEPTH:
        return "is nested too deeply"
    if isinstance(value, list):
        return next((found for one in value if (found := fault(one, depth + 1))), None)
    if isinstance(value, dict):
        return next((found for pair in value.items() for one in pair if (found := fault(one, depth + 1))), None)
    return f"holds a value of type {type(value).__name__}, which JSON does not have"


def is_number(value: Any) -> bool:
    """Whether it is a number, no truth value, that fits into a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1.7976931348623157e308
