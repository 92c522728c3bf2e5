"""The grade of an answer that a worker process did not compare."""

from __future__ import annotations

from typing import Any

from ablation.problems.outcome import Grade
from ablation.problems.workers import Failure

_INCORRECT = {
    "answer": "unreadable_answer",
    "compare": "not_comparable",
    "time": "grader_timeout",
    "memory": "memory_limit",
}
"""What is the answer's own doing, the same each time it is graded."""


def failed_grade(found: dict[str, Any] | Failure, extracted: str) -> Grade:
    """Incorrect, with the reason, if the answer is to blame; a grader error if the gold or the machine is."""
    kind = found.kind if isinstance(found, Failure) else found["failed"]
    if kind in _INCORRECT:
        return Grade("incorrect", extracted, _INCORRECT[kind])
    return Grade("grader_error", extracted, f"worker_{kind}" if isinstance(found, Failure) else f"unreadable_{kind}")
