"""What is wrong with many rows, told together: whoever repairs a file wants to know more than its first fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ablation.errors import UsageError

MOST = 20
"""Faults that are named at once."""

One = TypeVar("One")
Result = TypeVar("Result")


def each(of: Iterable[One], read: Callable[[One], Result]) -> list[Result]:
    """`read` of each. Raises one `UsageError` with the first `MOST` of those that `read` raised, a line each."""
    found: list[Result] = []
    wrong: list[UsageError] = []
    for one in of:
        try:
            found.append(read(one))
        except UsageError as error:
            wrong.append(error)
            if len(wrong) > MOST:
                break
    if not wrong:
        return found
    if len(wrong) == 1:
        raise wrong[0]
    hints = list(dict.fromkeys(error.hint for error in wrong[:MOST] if error.hint))
    more = [f"and more: the first {MOST} are named"] if len(wrong) > MOST else []
    raise UsageError("\n".join([*(error.message for error in wrong[:MOST]), *more]), hint="\n".join(hints) or None)
