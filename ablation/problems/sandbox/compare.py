"""Whether a returned value is the expected one. Both are in the JSON form of `values`; the returned one comes from code that
nobody trusts.

It is never turned into Python sets or dicts of its own keys, whose hashes its author could choose to be all alike.

Rules, the same at any depth:

- Numbers compare by value, exactly: 3 and 3.0 are equal, and so are 0.0 and -0.0. NaN equals NaN. True and False are no numbers.
- Where the expected number is a float and the case has a `tolerance` t, |a - b| <= t * max(1, |expected|) is enough.
- Texts and bytes character by character; text and bytes are never equal.
- A list equals only a list and a tuple only a tuple, item by item.
- Sets and frozensets are one kind; members and keys of dicts compare without tolerance. The order of a dict's keys does not
  matter.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

from ablation.problems.sandbox.values import MAX_DEPTH, NotPlain, tagged


def same(expected: Any, found: Any, tolerance: float = 0.0) -> bool:
    """Whether `found` is `expected` by the rules above; a `found` that is no plain value is not.

    `tolerance` is relative above 1 and absolute below.
    """
    try:
        return _same(expected, found, tolerance, 0)
    except (NotPlain, ValueError, TypeError, AttributeError, OverflowError):
        return False  # `found` is malformed: `expected` was read when the problem was


def _open(value: Any) -> tuple[str, Any]:
    """Kind and content: texts for texts and bytes, a list of items, a list of [key, item] pairs."""
    if value is None:
        return "none", None
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int | float):
        return "number", value
    if isinstance(value, str):
        return "str", value
    if isinstance(value, list):
        return "list", value
    found = tagged(value)
    if found is None:
        return "dict", [[key, item] for key, item in value.items()]
    tag, content = found
    if tag == "$int":
        return "number", int(content, 16)
    if tag == "$float" and content in ("nan", "inf", "-inf"):
        return "number", float(content)
    if tag == "$bytes":
        return "bytes", bytes.fromhex(content)
    if tag == "$complex":
        real, imaginary = content
        return "complex", [real, imaginary]
    if tag in ("$tuple", "$set", "$frozenset", "$dict") and isinstance(content, list):
        return {"$tuple": "tuple", "$dict": "dict"}.get(tag, "set"), content
    raise NotPlain(tag)


def _same(expected: Any, found: Any, tolerance: float, depth: int) -> bool:
    if depth > MAX_DEPTH:
        raise NotPlain("nested too deeply")
    kind, wanted = _open(expected)
    other, got = _open(found)
    if kind != other:
        return False
    if kind == "number":
        return same_number(wanted, got, tolerance)
    if kind in ("list", "tuple", "complex"):
        return len(wanted) == len(got) and all(_same(a, b, tolerance, depth + 1) for a, b in zip(wanted, got, strict=True))
    if kind == "set":
        return {_key(item, depth + 1) for item in wanted} == {_key(item, depth + 1) for item in got}
    if kind == "dict":
        left = {_key(key, depth + 1): item for key, item in wanted}
        right = {_key(key, depth + 1): item for key, item in got}
        return left.keys() == right.keys() and all(_same(left[key], right[key], tolerance, depth + 1) for key in left)
    return wanted == got


def same_number(expected: float, found: float, tolerance: float) -> bool:
    """Two numbers, by the rules above."""
    if expected == found or (expected != expected and found != found):
        return True
    if not tolerance or not isinstance(expected, float) or not math.isfinite(expected):
        return False
    return abs(expected - found) <= tolerance * max(1.0, abs(expected))


def _key(value: Any, depth: int) -> str:
    """A text of bounded length that two members of a set, or two keys, share only if they are the same."""
    if depth > MAX_DEPTH:
        raise NotPlain("nested too deeply")
    kind, content = _open(value)
    if kind == "number":
        if isinstance(content, float) and content.is_integer():
            content = int(content)
        parts = [hex(content) if isinstance(content, int) else content.hex()]
    elif kind in ("none", "bool", "str", "bytes"):
        parts = [str(content)]
    elif kind == "dict":
        parts = sorted(_key(key, depth + 1) + _key(item, depth + 1) for key, item in content)
    else:
        parts = [_key(item, depth + 1) for item in content]
        if kind == "set":
            parts = sorted(set(parts))
    return hashlib.sha256("\n".join([kind, *parts]).encode("utf-8", "surrogatepass")).hexdigest()
