"""Values of JSON Lines and Parquet, whatever their field: read strictly, and looked at before anything works with them."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

from ablation.errors import UsageError

MAX_DEPTH = 200
LARGEST = sys.float_info.max
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
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def shown(value: Any) -> str:
    """`value` as an error can hold it: on one line, what cannot be seen escaped, and not longer than it helps."""
    text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in str(value)[:200])
    return text if len(text) <= 80 else f"{text[:77]}..."


def parse_line(line: bytes, where: str) -> Any:
    """The value of one line of JSON. Raises `UsageError` beginning with `where`, also for a key that is there twice."""
    try:
        return json.loads(line.decode("utf-8-sig"), object_pairs_hook=_no_duplicates)
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8 (byte {error.start})", hint="Save the file as UTF-8.") from error
    except _DuplicateKey as error:
        raise UsageError(f"{where}: {error}: the field is there twice", hint="Keep one of the two.") from error
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}", hint="Each line is one JSON object.") from error
    except RecursionError as error:
        raise UsageError(f"{where}: nested too deeply", hint="Each line is one JSON object.") from error


class _DuplicateKey(ValueError):
    pass


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise _DuplicateKey(key)
        seen[key] = value
    return seen
