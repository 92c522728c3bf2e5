"""What became of each rollout, and the measures of a stage: own counts, to be compared with `measures.json` and the verdict.

Means are rounded once, from a sum without rounding, so no order of adding can move a last bit.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import regex

from ablation.audit.answers import Grade
from ablation.audit.loops import periodic, strong
from ablation.audit.stages import Rows

_CJK = regex.compile(r"[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Hangul}\p{scx=Bopomofo}]")
COUNTED = (
    "correct",
    "clean",
    "truncated",
    "looping",
    "truncated_or_looping",
    "no_answer",
    "finished",
    "periodic",
    "strong",
    "stopped_in_thinking",
)
MEANS = {"logprob": "logprobs", "top20_entropy": "top_entropy", "top20_mass": "top_mass"}
WITHOUT_THINKING = ("rollouts", "cells", "correct", "correct_rate", "truncated", "no_answer", "finished", "stopped_in_thinking")
"""Measures that can be told of rollouts whose thinking is not known; no other can."""


@dataclass(frozen=True)
class Outcome:
    """One rollout."""

    problem: str
    effort: str
    source: str
    index: int
    correct: bool
    no_answer: bool
    truncated: bool
    finished: bool
    stopped_in_thinking: bool
    periodic: bool
    strong: bool
    thinking_length: int
    weighted_start: int
    weighted_length: int
    """Thinking tokens, and the one that closes them where there is one."""
    tokens: int
    logprob: float | None
    """Mean over the thinking, nats; None without thinking, NaN or infinite if a token's is."""
    top20_entropy: float | None
    top20_mass: float | None
    cjk_share: float
    redacted: bool = False
    """Its thinking is not known, so nothing above that is made of it counts."""

    @cached_property
    def looping(self) -> bool:
        return self.periodic or self.strong

    @cached_property
    def clean(self) -> bool:
        return self.correct and self.finished and not self.looping

    @cached_property
    def truncated_or_looping(self) -> bool:
        return self.truncated or self.looping

    @cached_property
    def cell(self) -> str:
        return f"{self.problem}@{self.effort}"


@dataclass(frozen=True)
class Span:
    """Thinking is tokens start:stop of the rollout."""

    start: int
    stop: int
    opened: bool
    closed: bool

    @property
    def answer(self) -> int:
        """First token of the visible answer."""
        return self.stop + 1 if self.closed else self.stop

    @property
    def visible(self) -> bool:
        """Whether there can be a visible answer."""
        return self.closed or not self.opened


def spans(rows: Rows) -> list[Span]:
    """Thinking starts at token 0 if the prompt opened it, else after the first open token, and ends before the close token."""
    ids = rows.tokens["token_ids"]
    opens, closes = (np.flatnonzero(ids == rows.info[name]).tolist() for name in ("think_open_id", "think_close_id"))
    found = []
    for row, (begin, end) in enumerate(zip(rows.ends, rows.ends[1:], strict=False)):
        start = begin
        if not rows.columns["prompt_opens_thinking"][row]:
            place = bisect_left(opens, begin)
            if place == len(opens) or opens[place] >= end:
                found.append(Span(0, 0, opened=False, closed=False))
                continue
            start = opens[place] + 1
        place = bisect_left(closes, start)
        closed = place < len(closes) and closes[place] < end
        found.append(Span(start - begin, (closes[place] if closed else end) - begin, opened=True, closed=closed))
    return found


def outcomes(rows: Rows, grades: Sequence[Grade | None], loops: dict[str, Any]) -> list[Outcome]:
    """Every rollout of the stage, in stored order. A grader's failure must have been named before."""
    own = spans(rows)
    parts = [slice(begin + span.start, begin + span.stop) for begin, span in zip(rows.ends, own, strict=False)]
    ids = [rows.tokens["token_ids"][part] for part in parts]
    looping = periodic(ids, loops)
    means = {name: exact_means(rows.tokens[column], parts) for name, column in MEANS.items()}
    end_ids, redacted = set(rows.info["end_ids"]), rows.redacted
    texts = [text or "" for text in rows.columns["thinking_text"]]
    found = []
    for row, span in enumerate(own):
        stopped = int(rows.tokens["token_ids"][rows.ends[row + 1] - 1]) in end_ids
        grade = grades[row]
        found.append(
            Outcome(
                problem=rows.columns["problem"][row],
                effort=rows.columns["effort"][row],
                source=rows.columns["source"][row],
                index=rows.columns["index"][row],
                correct=grade is not None and grade[0] == "correct",
                no_answer=grade is None or grade[0] == "no_answer",
                truncated=not stopped,
                finished=stopped and span.visible,
                stopped_in_thinking=stopped and not span.visible,
                periodic=looping[row],
                strong=strong(ids[row], loops, texts[row]),
                thinking_length=span.stop - span.start,
                weighted_start=span.start,
                weighted_length=span.stop - span.start + span.closed,
                tokens=rows.ends[row + 1] - rows.ends[row],
                **{name: values[row] for name, values in means.items()},
                cjk_share=cjk_share(texts[row]),
                redacted=redacted[row],
            )
        )
    return found


def exact_means(values: np.ndarray, parts: Sequence[slice]) -> list[float | None]:
    """The mean of each part, rounded once; None for an empty part; NaN or an infinity where one of its numbers is not finite."""
    found: list[float | None] = []
    whole = bool(np.isfinite(values).all())
    for part in parts:
        numbers = values[part].tolist()
        if not numbers:
            found.append(None)
            continue
        if not whole and not np.isfinite(values[part]).all():
            found.append(float(values[part].sum()))
            continue
        total = math.fsum(numbers)
        rest = math.fsum([*numbers, -total])  # what rounding the sum took away, itself exact to twice a double's digits
        found.append(float((Fraction(total) + Fraction(rest)) / len(numbers)))
    return found


def mean(values: Iterable[float]) -> float | None:
    """Rounded once; None over nothing, and if any number is not finite."""
    numbers = list(values)
    if not numbers or not np.isfinite(numbers).all():
        return None
    parts = [number.as_integer_ratio() for number in numbers]
    scale = max(denominator for _, denominator in parts)  # each is a power of two
    return float(Fraction(sum(numerator * (scale // denominator) for numerator, denominator in parts), scale * len(parts)))


def cjk_share(text: str) -> float:
    """Letters of the CJK scripts among all letters (and the letter numbers of these scripts)."""
    if text.isascii():
        return 0.0
    counts = Counter(text)
    cjk = sum(number for character, number in counts.items() if is_cjk(character))
    other = sum(number for character, number in counts.items() if character.isalpha() and not is_cjk(character))
    return cjk / (cjk + other) if cjk else 0.0


@lru_cache(maxsize=65_536)
def is_cjk(character: str) -> bool:
    return bool(_CJK.match(character)) and bool(regex.match(r"[\p{L}\p{Nl}]", character))


def measures(found: Sequence[Outcome]) -> dict[str, Any]:
    """What `measures.json` should say, by this audit's own counts."""
    whole = _measured(found)
    for name in ("effort", "source"):
        groups: dict[str, list[Outcome]] = {}
        for one in found:
            groups.setdefault(getattr(one, name), []).append(one)
        whole[f"by_{name}"] = {label: _measured(members) for label, members in sorted(groups.items())}
    return whole


def unread(found: Iterable[Outcome]) -> dict[str, Any]:
    """Of the rollouts that ended by themselves, how many have no answer that could be read."""
    ended = [one for one in found if not one.truncated]
    count = sum(one.no_answer for one in ended)
    return {"unread": count, "ended": len(ended), "share": count / len(ended) if ended else None}


def too_unread(own: Sequence[Outcome], other: Sequence[Outcome], plan: Mapping[str, Any]) -> bool:
    """Whether the plan's `verdict.unread` lets nothing be said of two stages."""
    limits, sides = plan["verdict"].get("unread"), [unread(own), unread(other)]
    if limits is None or not all(side["ended"] for side in sides):
        return False
    first, second = (Fraction(side["unread"], side["ended"]) for side in sides)
    most, differ = (Fraction(str(limits[name])) for name in ("at_most", "differ_at_most"))
    return first > most or second > most or abs(first - second) > differ


def _measured(found: Sequence[Outcome]) -> dict[str, Any]:
    counts = {name: sum(getattr(one, name) for one in found) for name in COUNTED}
    clean = [one for one in found if one.clean]
    thought = [one for one in found if one.thinking_length]
    total = sum(one.tokens for one in found)
    whole = {
        "rollouts": len(found),
        "cells": len({one.cell for one in found}),
        **counts,
        "with_thinking": len(thought),
        "total_tokens": total,
        "thinking_tokens": sum(one.thinking_length for one in found),
        "tokens_per_correct": total / counts["correct"] if counts["correct"] else None,
        "clean_length": mean(one.thinking_length for one in clean),
        **{name: mean(getattr(one, name) for one in thought) for name in MEANS},
        "cjk_share": float(statistics.median(one.cjk_share for one in clean)) if clean else None,
    }
    return {name: value if name in WITHOUT_THINKING or not hidden(found) else None for name, value in whole.items()}


def hidden(*stages: Sequence[Outcome]) -> bool:
    """Whether the thinking of any rollout is not known."""
    return any(one.redacted for stage in stages for one in stage)
