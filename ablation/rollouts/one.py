"""One rollout with all that is known of it: its numbers, its texts, its loop in tokens and in characters, its grade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablation.plan.locate import locate
from ablation.plan.model import Loops, Plan
from ablation.problems.grade import grade
from ablation.problems.outcome import Grade
from ablation.problems.pieces import aligned
from ablation.problems.problem import Problem, load_problems
from ablation.problems.tokenizer import FolderTokenizer
from ablation.rollouts.address import Address, find_row, full_name
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.grades import read_grades
from ablation.rollouts.loops import find_loops
from ablation.rollouts.repeated import repeated_tokens, stretches
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import read_stage
from ablation.rollouts.text_measures import measure_text


@dataclass(frozen=True)
class Loop:
    """The longest periodic loop of a thinking; characters are those of the thinking's text."""

    start: int
    """First token of the stretch, from the start of the thinking."""
    length: int
    """Tokens of the stretch."""
    period: int
    """Tokens of the repeated unit."""
    characters: tuple[int, int] | None
    """First character of the stretch and the one after its last; None if the text does not show it."""
    by: str
    """What the characters were found by: `tokens`, or `characters` where the tokenizer is not at hand."""


@dataclass(frozen=True)
class Repeats:
    """What makes a strong loop: the stretches of tokens whose windows occurred before, in order."""

    tokens: list[tuple[int, int]]
    """[first, one after the last) of each, from the start of the thinking."""
    characters: list[tuple[int, int]] | None
    """The same in the thinking's text; None if the text does not show it."""


@dataclass(frozen=True)
class One:
    """A rollout. T = sampled tokens."""

    name: str
    """Its address."""
    stage: str
    problem_id: str
    effort: str
    index: int
    seed: int
    problem: Problem | None
    """None where the stage samples states or prompts that are no problems."""
    grade: Grade | None
    finish_reason: str
    redacted: bool
    """The thinking is not known: its text is empty here, and none of its numbers counts."""
    opened: bool
    closed: bool
    thinking_text: str
    answer_text: str
    thinking_tokens: int
    answer_tokens: int
    loop: Loop | None
    repeated_share: float
    strong: bool
    repeats: Repeats | None
    """None where the loop is not strong."""
    loops: Loops
    """The plan's definitions of both kinds."""
    ids: np.ndarray  # int32 [T]
    logprobs: np.ndarray  # float64 [T], nats
    entropies: np.ndarray  # float64 [T], nats
    start: int
    """The thinking is `ids[start:start + thinking_tokens]`."""
    pieces: list[str] | None
    """The text of each token, [T]; None where the tokenizer is not at hand."""

    @property
    def logprob(self) -> float | None:
        """Mean over the thinking tokens, nats; None if there are none."""
        values = self.logprobs[self.start : self.start + self.thinking_tokens]
        return float(values.mean()) if len(values) else None

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def looping(self) -> bool:
        return self.loop is not None or self.strong


def read_one(root: Path, plan: Plan, address: Address, tokenizer: FolderTokenizer | None = None, *, pieces: bool = False) -> One:
    """The rollout at `address`; `pieces` asks for the text of each token, which `tokenizer` gives."""
    stage = read_stage(root / address.stage)
    row = find_row(stage, address, root)
    tokens = slice(stage.offsets[row], stage.offsets[row + 1])
    ids, thinking = stage.token_ids[tokens], stage.thinking
    start = int(thinking.start[row] - stage.offsets[row])
    length = int(thinking.lengths[row])
    closed, opened = bool(thinking.closed[row]), bool(thinking.opened[row])
    text = stage.thinking_text[row]
    problem = _problem(root, address.stage, stage.problem[row])
    found = find_loops(ids[start : start + length], np.array([0, length]), plan.loops, [text])
    loop, shown = None, None
    if tokenizer is not None and (pieces or found.periodic[0] or found.strong[0]):
        shown = tokenizer.pieces(ids)
        if shown is not None and not aligned(shown[start : start + length], text):
            shown = None  # another tokenizer than the one that sampled
    if found.periodic[0]:
        place = (int(found.start[0]), int(found.length[0]), int(found.period[0]))
        loop = Loop(*place, *_characters(place, text, None if shown is None else shown[start : start + length], plan))
    repeats = None
    if found.strong[0]:
        again = stretches(repeated_tokens(ids[start : start + length], plan.loops.gram))
        repeats = Repeats(again, None if shown is None else _spans(again, text, shown[start : start + length]))
    return One(
        name=full_name(address.stage, stage, row),
        stage=address.stage,
        problem_id=stage.problem[row],
        effort=stage.effort[row],
        index=int(stage.index[row]),
        seed=int(stage.seed[row]),
        problem=problem,
        grade=_grade(root / address.stage, stage, row, problem, closed or not opened),
        finish_reason=stage.finish_reason[row],
        redacted=bool(stage.redacted[row]),
        opened=opened,
        closed=closed,
        thinking_text=text,
        answer_text=stage.answer_text[row],
        thinking_tokens=length,
        answer_tokens=_answer_tokens(ids, start + length + 1 if closed else len(ids) if opened else 0, stage.info.end_ids),
        loop=loop,
        repeated_share=float(found.repeated_share[0]),
        strong=bool(found.strong[0]),
        repeats=repeats,
        loops=plan.loops,
        ids=ids,
        logprobs=stage.logprobs[tokens],
        entropies=stage.top_entropy[tokens],
        start=start,
        pieces=shown if pieces else None,
    )


def find_tokenizer(plan: Plan, *plan_paths: Path) -> FolderTokenizer | None:
    """The tokenizer of the plan's model; None where it or the package is not on this machine.

    `plan_paths`: the files that the plan may have been read from, as its model may be named by its place beside it.
    """
    return next(filter(None, (FolderTokenizer.of(locate(plan.model.base, path)) for path in plan_paths)), None)


def _answer_tokens(ids: np.ndarray, begin: int, end_ids: tuple[int, ...]) -> int:
    """Tokens of the visible answer, its end token left out."""
    count = len(ids) - begin
    return count - 1 if count and int(ids[-1]) in end_ids else count


def _problem(root: Path, stage: str, name: str) -> Problem | None:
    kind, _, rest = stage.partition("/")
    path = RunFolder(root).problems
    if kind == "evaluations":
        set_name = rest.partition("/")[0]
        path = RunFolder(root).set_problems(set_name)
        if path.name != "problems.jsonl":
            return None
    return load_problems(path).get(name)


def _grade(folder: Path, stage: Stage, row: int, problem: Problem | None, visible: bool) -> Grade | None:
    stored = read_grades(folder, stage)
    if stored is not None:
        return stored.grades[row]
    return grade(problem, stage.answer_text[row]) if problem is not None and visible else None


def _characters(
    place: tuple[int, int, int], text: str, pieces: list[str] | None, plan: Plan
) -> tuple[tuple[int, int] | None, str]:
    """(first and last character + 1 of the stretch in `text`, what they were found by)."""
    start, length, _ = place
    spans = None if pieces is None else _spans([(start, start + length)], text, pieces)
    if spans:
        return spans[0], "tokens"
    found = measure_text(text, plan.loops, tags=("\0", "\1"), opened=True).loop
    return (None if found is None else (found.start, found.end)), "characters"


def _spans(places: list[tuple[int, int]], text: str, pieces: list[str]) -> list[tuple[int, int]] | None:
    """The characters of `text` that these tokens stand for; None if the pieces are not the text."""
    if not aligned(pieces, text):
        return None
    whole = "".join(pieces)
    shift = len(text) - len(text.lstrip()) - (len(whole) - len(whole.lstrip()))
    ends = np.cumsum([0, *map(len, pieces)]) + shift
    return [tuple(np.clip(ends[[first, after]], 0, len(text)).tolist()) for first, after in places]


def as_json(one: One, *, tokens: bool) -> Mapping[str, Any]:
    """The rollout as data; `tokens` adds each token."""
    loop = one.loop
    content: dict[str, Any] = {
        "rollout": one.name,
        "stage": one.stage,
        "problem": one.problem_id,
        "effort": one.effort,
        "index": one.index,
        "seed": one.seed,
        "prompt": None if one.problem is None else one.problem.prompt,
        "gold": None if one.problem is None else one.problem.gold,
        "grade": None if one.grade is None else {name: getattr(one.grade, name) for name in ("status", "extracted", "reason")},
        "finish_reason": one.finish_reason,
        "thinking": {"opened": one.opened, "closed": one.closed, "tokens": one.thinking_tokens, "text": one.thinking_text},
        "answer": {"tokens": one.answer_tokens, "text": one.answer_text},
        "total_tokens": len(one.ids),
        "logprob": _finite(one.logprob),
        "looping": one.looping,
        "loop": None
        if loop is None
        else {
            "start": loop.start,
            "length": loop.length,
            "period": loop.period,
            "repeats": loop.length / loop.period,
            "characters": None if loop.characters is None else list(loop.characters),
            "characters_by": loop.by,
        },
        "repeated_share": one.repeated_share,
        "strong_loop": one.strong,
        "repeats": None
        if one.repeats is None
        else {"gram": one.loops.gram, "limit": one.loops.repeated_share, "tokens": one.repeats.tokens}
        | {"characters": one.repeats.characters},
    }
    if one.redacted:
        content["thinking"] |= {"tokens": None, "text": None}
        content |= dict.fromkeys(("total_tokens", "logprob", "looping", "repeated_share", "strong_loop"))
    if tokens:
        texts = one.pieces or [None] * len(one.ids)
        content["tokens"] = [
            {"id": int(id_), "text": text, "logprob": _finite(logprob), "entropy": _finite(entropy)}
            for id_, text, logprob, entropy in zip(one.ids, texts, one.logprobs, one.entropies, strict=True)
        ]
    return content


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
