"""What an audit found: how much was checked, what differs, what is missing, and what no audit of files can show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyarrow import ArrowException

from ablation.errors import AblationError, IncompleteError

ROUNDING = 1e-9
"""Largest relative difference between two computations of one number: they add in another order."""

UNREADABLE = (ArrowException, ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""What reading a file can end with that was not written as `runs/README.md` says."""

CANNOT = (
    "that stored logprobs, entropies and token ids are what the named model gave: no model is run",
    "that the sampler sampled with the seeds and settings that it stored",
    "that a text is the decoded form of its token ids: only that equal ids have equal texts",
    "that optimizer steps did what the weights say, and what a command of your own trained on",
    "that nobody wrote the whole folder anew, journal and all: keep `ablation journal head` outside, or a proof of the lock",
)
"""True of every run."""


@dataclass
class Findings:
    """Filled while an audit goes on."""

    checked: Counter[str] = field(default_factory=Counter)
    """What was compared -> how many of it."""
    differences: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What the plan asks for and is not there."""
    cannot: list[str] = field(default_factory=list)
    """What could not be checked in this run, beside `CANNOT`."""
    borrowed: list[str] = field(default_factory=list)
    """Code of the engine that this audit called, so that it is not checked by it."""
    notes: list[str] = field(default_factory=list)
    _said: set[tuple[int, str]] = field(default_factory=set, repr=False, compare=False)

    def count(self, what: str, by: int = 1) -> None:
        self.checked[what] += by

    def differ(self, where: object, text: str) -> None:
        self._once(self.differences, f"{where}: {text}")

    def lacks(self, what: str) -> None:
        self._once(self.missing, what)

    def leave(self, what: str) -> None:
        self._once(self.cannot, what)

    def borrow(self, what: str) -> None:
        self._once(self.borrowed, what)

    def note(self, what: str) -> None:
        self._once(self.notes, what)

    def _once(self, lines: list[str], line: str) -> None:
        if (id(lines), line) not in self._said:  # a plan of many arms may have many lines
            self._said.add((id(lines), line))
            lines.append(line)

    def same(self, where: object, name: str, stored: Any, own: Any, *, source: str = "the rollouts give") -> bool:
        """Compare one stored value with this audit's own; objects and lists field by field."""
        if isinstance(stored, dict) and isinstance(own, dict):
            inside = [self.same(where, f"{name}.{key}".lstrip("."), stored.get(key), own[key], source=source) for key in own]
            return all(inside)
        if isinstance(stored, list) and isinstance(own, list) and len(stored) == len(own):
            return all(
                [
                    self.same(where, f"{name}[{i}]", one, two, source=source)
                    for i, (one, two) in enumerate(zip(stored, own, strict=True))
                ]
            )
        if agree(stored, own):
            return True
        self.differ(where, f"{name} is {shown(stored)}; {source} {shown(own)}")
        return False

    @contextmanager
    def guard(self, where: object) -> Iterator[None]:
        """What cannot be read is a difference, and the audit goes on with the rest."""
        try:
            yield
        except IncompleteError as error:
            self.lacks(f"{where}: {error.message}")
        except AblationError as error:
            self.differ(where, error.message)
        except UNREADABLE as error:
            words = str(error).splitlines()[0][:200] if str(error) else "no more is known"
            self.differ(where, f"cannot be read as what it should be ({type(error).__name__}: {words})")


def agree(stored: Any, own: Any) -> bool:
    """Equal, or floats that differ by rounding alone. A whole number must be exactly that number."""
    if isinstance(stored, bool) or isinstance(own, bool) or stored is None or own is None:
        return stored is own
    if isinstance(stored, int | float) and isinstance(own, int | float):
        if isinstance(own, int) or not (math.isfinite(stored) and math.isfinite(own)):
            return stored == own
        return math.isclose(stored, own, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return type(stored) is type(own) and stored == own


def shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else f"`{value}`"
    return text if len(text) <= 120 else text[:117] + "..."
