"""What a grader says about one visible answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["correct", "incorrect", "no_answer", "grader_error"]


@dataclass(frozen=True)
class Grade:
    """What the grader found. `extracted` is the answer it compared, None if there was none."""

    status: Status
    extracted: str | None
    reason: str | None = None
    """Why it is not correct, in a word: wrong_answer, no_box, grader_timeout, ...; None if it is correct."""
