"""One rollout as a person reads it: prompt, thinking, answer, each token with its numbers, the loop marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from ablation.errors import AblationError, IntegrityError
from ablation.files import sha256_path
from ablation.plan.locate import locate
from ablation.problems.pieces import aligned
from ablation.problems.render import ids_sha256, one_start
from ablation.problems.template import PlainTemplate, chat_template
from ablation.problems.tokenizer import FILE, FolderTokenizer
from ablation.rollouts.repeated import longest, repeated_tokens, stretches
from ablation.rollouts.thinking import thinking_span
from ablation.view.jobs import Jobs

if TYPE_CHECKING:
    from ablation.view.library import Study

WINDOW = 4000
"""Tokens on a page."""
LOGPROB_STEPS = (-0.1, -0.5, -1.0, -2.0, -4.0)
"""Nats; a token below the k-th of them has shade k + 1."""
_DIGESTS = Jobs()
"""Of base models; a large one takes longer than a page may."""
_COLUMNS = (
    *("token_ids", "logprobs", "top_entropy", "thinking_text", "answer_text"),
    *("prompt_sha256", "prompt_length", "prompt_opens_thinking", "finish_reason", "seed"),
)


@dataclass(frozen=True)
class Token:
    """A token as it is shown."""

    text: str
    id: int
    logprob: float
    entropy: float
    weight: float | None
    shade: str
    loop: bool
    """In the longest periodic loop."""
    again: bool
    """In a window that occurred before, where these make a strong loop."""


@dataclass(frozen=True)
class Section:
    """`thinking`, `answer`, or `before` (what was sampled ahead of the thinking): its tokens, and its text as it was stored."""

    name: str
    tokens: list[Token]
    count: int
    """Of all tokens, of which `tokens` may be a part."""
    first: int
    """Place of the first one in the rollout."""
    text: str | None
    """None: the thinking is not known."""


@dataclass(frozen=True)
class Shown:
    """A rollout."""

    row: Mapping[str, Any]
    sections: list[Section]
    prompt: str | None
    proven: bool
    """The prompt's token ids have the digest that was stored when this was sampled."""
    start: int
    stop: int
    """The page is `tokens[start:stop]`."""
    total: int
    decoded: bool
    note: str | None
    """Why tokens have no text here."""
    finish_reason: str
    weights: str | None
    """Why there are no weights; None if there are."""
    largest: float
    """Largest absolute weight."""


def read_row(root: Path, folder: str, part: str, row: int) -> dict[str, Any]:
    """One row of a part. Only the row group that holds it is read."""
    path = root / folder / part
    try:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < rows:
                table = file.read_row_group(group, columns=list(_COLUMNS), use_threads=False)
                return table.slice(row, 1).to_pylist()[0]
            row -= rows
    except (OSError, ValueError, KeyError) as error:
        raise IntegrityError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from None
    raise IntegrityError(f"{path}: has no row {row}")


def show(study: Study, row: Mapping[str, Any], *, first: int | None = None, by: str = "logprob") -> Shown:
    """The rollout of a row of the table. `first`: where the page begins (None: at the longest loop if it is far)."""
    stored = read_row(study.root, row["folder"], row["part"], row["part_row"])
    ids = stored["token_ids"]
    info = _info(study.root / row["folder"] / row["part"])
    span = thinking_span(
        ids,
        prompt_opens_thinking=stored["prompt_opens_thinking"],
        open_id=info.think_open_id,
        close_id=info.think_close_id,
    )
    weights, why_not = (None, None) if by != "weight" else _weights(study, row)
    base, note = _base(study)
    tokenizer = base and FolderTokenizer.of(base)
    pieces = tokenizer and tokenizer.pieces(ids)
    if pieces is None and note is None:
        note = "The tokenizer of the base model cannot be used here, so tokens are shown by their ids."
    if pieces is not None and not aligned(pieces[span.start : span.stop], stored["thinking_text"] or ""):
        pieces = None
        note = "The tokenizer on this machine does not give the text that was stored, so tokens are shown by their ids."
    loop = range(0)
    if row["loop_length"]:
        loop = range(span.start + row["loop_start"], span.start + row["loop_start"] + row["loop_length"])
    total = len(ids)
    again_T = np.zeros(total, dtype=bool)
    if row["strong"]:
        again_T[span.start : span.stop] = repeated_tokens(ids[span.start : span.stop], study.locked.plan.loops.gram)
    if first is None:
        mark = loop.start if loop else (longest(stretches(again_T)) or (0, 0))[0]
        first = max(0, mark - WINDOW // 4) if mark >= WINDOW else 0
    start = min(max(first, 0), max(total - 1, 0))
    stop = min(total, start + WINDOW)
    largest = 0.0 if weights is None else float(np.abs(weights).max(initial=0.0))
    bounds = [("before", 0, span.start), ("thinking", span.start, span.stop), ("answer", span.answer_start, total)]
    sections = []
    for name, begin, end in bounds:
        if end <= begin and name == "before":
            continue
        tokens = []
        for at in range(max(begin, start), min(end, stop)):
            weight = None if weights is None else float(weights[at])
            shade = _by_weight(weight, largest) if by == "weight" else _by_logprob(stored["logprobs"][at])
            text = f"{ids[at]} " if pieces is None else pieces[at]
            numbers = (stored["logprobs"][at], stored["top_entropy"][at], weight)
            tokens.append(Token(text, ids[at], *numbers, shade, at in loop, bool(again_T[at])))
        text = {"thinking": stored["thinking_text"], "answer": stored["answer_text"]}.get(name, "")
        sections.append(Section(name, tokens, max(0, end - begin), begin, text))
    prompt, proven = _prompt(study, row, stored, base, tokenizer)
    return Shown(
        row, sections, prompt, proven, start, stop, total, pieces is not None, note, stored["finish_reason"], why_not, largest
    )


def _info(path: Path) -> Any:
    from ablation.rollouts.store import part_info

    return part_info(path)


def _by_logprob(value: float) -> str:
    return f"l{sum(value < step for step in LOGPROB_STEPS)}" if np.isfinite(value) else "l5"


def _by_weight(value: float | None, largest: float) -> str:
    if not value or not largest:
        return "w0"
    step = 1 + sum(abs(value) > largest * share for share in (0.3, 0.6))
    return f"{'p' if value > 0 else 'n'}{step}"


def _near(study: Study) -> list[Path]:
    """Plans that may say where the base model is: the run's copy, and the one that it was made from."""
    return [study.run.plan, study.root.resolve().parent.parent / "plans" / f"{study.locked.plan.name}.yaml"]


def _base(study: Study) -> tuple[Path | None, str | None]:
    """(the plan's base model, None), or (None, why it is not used): a folder of another digest is another model."""
    wanted = study.locked.plan.model.base
    for place in (locate(wanted, path) for path in _near(study)):
        if not (place / FILE).is_file():
            continue
        found = _DIGESTS.get(str(place), _state(place), lambda place=place: sha256_path(place), wait=2.0)
        if found is None:
            return None, "The base model's files are being held against the plan; until then tokens are shown by their ids."
        if found == wanted.sha256:
            return place, None
        return None, "The base model on this machine is not the plan's (its digest differs), so tokens are shown by their ids."
    return None, "The tokenizer of the base model is not on this machine, so tokens are shown by their ids."


def _state(folder: Path) -> tuple[Any, ...]:
    """Changes with the files of `folder`."""
    found = [(str(path), path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    return tuple((name, status.st_size, status.st_mtime_ns) for name, status in found)


def _prompt(
    study: Study, row: Mapping[str, Any], stored: Mapping[str, Any], base: Path | None, tokenizer: FolderTokenizer | None
) -> tuple[str | None, bool]:
    """(the prompt as the model saw it, True: its digest is the stored one), or (the problem's own text, False)."""
    try:
        problem = study.index.problems(row["folder"]).get(row["problem"])
    except AblationError:
        return None, False
    if problem is None:
        return None, False
    template = None if base is None else chat_template(base)
    if tokenizer is None or template is None:
        return problem.prompt, False
    try:
        text = PlainTemplate(template).apply_chat_template(
            [{"role": "user", "content": problem.prompt}], add_generation_prompt=True, reasoning_effort=row["effort"]
        )
    except ValueError:  # a template is a program; without it there is the problem's text
        return problem.prompt, False
    ids = tokenizer.encode(text)
    if ids and ids_sha256(one_start(ids, ids[0])) == stored["prompt_sha256"]:
        return text, True
    return problem.prompt, False


def gold(study: Study, row: Mapping[str, Any]) -> tuple[str, str] | None:
    """(grader, right answer) of the row's problem, where its grader has one."""
    try:
        problem = study.index.problems(row["folder"]).get(row["problem"])
    except AblationError:
        return None
    return None if problem is None else (problem.grader, str(problem.gold))


def _weights(study: Study, row: Mapping[str, Any]) -> tuple[np.ndarray | None, str | None]:
    """The weights that the rollout was trained with, or why they are not known."""
    if not row["stage"].startswith("update-"):
        return None, "Only the rollouts of an update were trained on; these were only read out."
    try:
        found = _of_update(str(study.root), study.locked.digest, row["family"], row["arm"], int(row["stage"].rpartition("-")[2]))
    except AblationError as error:
        return None, error.message
    if isinstance(found, str):
        return None, found
    where = {key: at for at, key in enumerate(found[0])}
    at = where.get((row["problem"], row["effort"], row["idx"]))
    return (None, "This rollout is not among those of the update.") if at is None else (found[1][at], None)


@lru_cache(maxsize=4)
def _of_update(root: str, digest: str, family: str, arm: str, update: int) -> Any:
    from ablation.study.run_folder import own_plan
    from ablation.training.run_audit import update_weights

    return update_weights(Path(root), own_plan(Path(root)), family, arm, update)
