"""`choice` on 500 answers of known kind (`tests/problems/choice_answers.py`), and the audit's own reader beside it."""

from __future__ import annotations

from collections.abc import Callable

from ablation.audit.options import option
from ablation.problems.graders.choice import read_letter
from tests.problems.choice_answers import PROMPT, answers

from .row import Row


def rows() -> list[Row]:
    return [*_wrong("choice", read_letter), *_wrong("choice, the audit's reader", option)]


def _wrong(name: str, read: Callable[[str, str], str | None]) -> list[Row]:
    known = answers()
    one = [read(stated.answer, PROMPT) == stated.letter for stated in known if stated.letter]
    none = [read(stated.answer, PROMPT) is None for stated in known if not stated.letter]
    return [
        Row(f"{name}: answers that state one option, not read as it", f"{one.count(False)} of {len(one)}", "0", all(one)),
        Row(f"{name}: hedges, rejections and the like that are paid", f"{none.count(False)} of {len(none)}", "0", all(none)),
    ]
