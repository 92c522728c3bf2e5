"""Digests of a problem's text, so that one problem is found again under another id, spacing or number."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass

from ablation.problems.problem import Problem

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Fingerprint:
    """Hex SHA-256 of a problem's normalized prompt, and of the same with its numbers masked."""

    text: str
    near: str


def normalized(text: str) -> str:
    """`text` in Unicode form NFKC, case folded, every run of white space one space, none at the ends."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def masked(text: str) -> str:
    """`normalized`, with 0 for every number in digits (12, 3.5, 1,000)."""
    return _NUMBER.sub("0", normalized(text))


def fingerprint(problem: Problem) -> Fingerprint:
    """The prompt alone counts: the same question with another id, source or gold is the same problem."""
    return Fingerprint(_sha256(normalized(problem.prompt)), _sha256(masked(problem.prompt)))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
