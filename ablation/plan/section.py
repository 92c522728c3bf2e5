"""The base of every section of a plan, and the types that several sections share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints


class Section(BaseModel):
    """A closed, typed, frozen part of a plan: unknown keys and wrong types are errors, never guesses."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True)

    later: ClassVar[frozenset[str]] = frozenset()
    """Fields that plans were locked without: with its default such a field is not in the canonical form, so old digests hold."""


class Refusal(ValueError):
    """What is wrong with a section whose fields are right one by one: (path below the section, what to say) pairs."""

    def __init__(self, problems: list[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, path))}: {text}" if path else text for path, text in problems))
        self.problems = problems


def refuse_any(problems: list[tuple[tuple[str | int, ...], str]]) -> None:
    """Raise a `Refusal` if there is anything in `problems`."""
    if problems:
        raise Refusal(problems)


def did_you_mean(found: object, allowed: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing if no allowed word is near."""
    allowed = list(allowed)
    near = difflib.get_close_matches(str(found), allowed, n=1, cutoff=0.6)
    if not near:  # case alone
        near = [word for word in allowed if word.lower() == str(found).lower()]
    return f"; did you mean `{near[0]}`?" if near else ""


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")]
"""A short name that is also a folder name."""

MOST_EFFORTS = 8
"""At which a plan samples anything: which pairs are read is chosen over all groups of them."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hex."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
# No number of a plan may be so large that arithmetic on it overflows or a table made from it fills the memory.
LARGEST = 10**15
PositiveInt = Annotated[int, Field(ge=1, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
PositiveFloat = Annotated[float, Field(gt=0, le=LARGEST)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
