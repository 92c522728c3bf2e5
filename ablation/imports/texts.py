"""The texts of a row, held against one another and against its ids: what contradicts is refused with both values.

Blanks do not count, nor end tokens at the end, nor special tokens that a dump was decoded without.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ablation.imports.columns import Row, message_text, shown
from ablation.imports.wanted import Wanted, bare
from ablation.plan.resources import ThinkingTokens
from ablation.rollouts.thinking import Span

PARTS = ("thinking", "answer")
_CHANNELS = re.compile(r"<\|channel\|>([^<]*)<\|message\|>((?:(?!<\|(?:end|return|call|start|channel)\|>).)*)", re.DOTALL)


@dataclass(frozen=True)
class Parts:
    """Thinking and answer by the tags of a text; None: there is no thinking, or it was never closed."""

    thinking: str | None
    answer: str | None


def completion_of(row: Row) -> str:
    """The text of a completion, which may be a list of one message."""
    found = row.get("completion")
    return found if isinstance(found, str) else message_text(found[0].get("content"))


def stripped(text: str, ends: Sequence[str]) -> tuple[str, bool]:
    """(text without the end token that it ends with, whether it had one)."""
    for end in ends:
        if text.endswith(end):
            return text[: -len(end)], True
    return text, False


def parts_of(text: str, tags: ThinkingTokens, opens: bool) -> Parts:
    """Thinking and answer of a text, by its tags."""
    text, _ = stripped(text, tags.end)
    if not opens:
        before, tag, text = text.partition(tags.open)
        if not tag:
            return Parts(None, before)
    thinking, tag, answer = text.partition(tags.close)
    return Parts(thinking, answer if tag else None)


def channels_of(text: str) -> Parts | None:
    """Thinking and answer of a text in channels, as gpt-oss writes them; None if it has none. `final` is the answer."""
    found = [(name.split()[:1], said) for name, said in _CHANNELS.findall(text)]
    if not found:
        return None
    thinking, answer = ([said for name, said in found if (name == ["final"]) == final] for final in (False, True))
    return Parts("\n".join(thinking) if thinking else None, "\n".join(answer) if answer else None)


def hold_columns(row: Row, parts: Parts, by: str) -> None:
    """Raise `UsageError` if the columns `thinking` and `answer` say something else than `parts`, which were read from `by`."""
    for column in PARTS:
        if column in row and bare(row.get(column)) != bare(getattr(parts, column) or ""):
            raise row.differ(column, row.get(column), by, getattr(parts, column) or "")


def texts_beside_ids(row: Row, wanted: Wanted, opens: bool, span: Span) -> tuple[str, str]:
    """(thinking, answer) of a row that has the sampled ids: decoded where a tokenizer is at hand, else as its columns say."""
    ids = row.get("token_ids")
    ids = ids[:-1] if ids[-1] in wanted.tokens.ids.end else ids
    answered = span.closed or not span.opened
    by_ids = {"thinking": ids[span.start : span.stop], "answer": ids[span.answer_start :] if answered else []}
    by_text = _parts_beside_ids(row, wanted, opens, span)
    for column, part in by_ids.items():
        _check_tags(row, wanted, column, part)
    if wanted.tokens.at_hand:
        for column, part in {"completion": ids, **by_ids}.items():
            _hold(row, wanted, column, part)
        thinking, answer = (wanted.tokens.decode(part) for part in by_ids.values())
        return thinking, answer
    if by_text is not None:
        hold_columns(row, by_text, "completion")
    thinking, answer = (_given(row, column, part, by_text) for column, part in by_ids.items())
    return thinking, answer


def check_no_tags(row: Row, wanted: Wanted) -> None:
    """Raise `UsageError` if `thinking` or `answer` of a row without ids holds a tag."""
    for column in PARTS:
        _check_tags(row, wanted, column, [])


def _check_tags(row: Row, wanted: Wanted, column: str, part: Sequence[int]) -> None:
    tags, frame = wanted.plan.model.tokens, wanted.tokens.ids
    for tag, token in ((tags.open, frame.open), (tags.close, frame.close)):
        if tag in (row.get(column) or "") and token not in part:
            raise row.error(
                f"{row.name(column)}: found {shown(row.get(column))}, which holds `{tag}`",
                "A text with its tags is a `completion`; with token_ids, its tags are those ids.",
            )


def _parts_beside_ids(row: Row, wanted: Wanted, opens: bool, span: Span) -> Parts | None:
    """Thinking and answer by the completion's tags, which must be where the ids have theirs."""
    if "completion" not in row:
        return None
    tags, text, ids = wanted.plan.model.tokens, completion_of(row), row.get("token_ids")
    parts = parts_of(text, tags, opens)
    by_text, by_ids = (parts.thinking is not None, tags.close in text), (span.opened, span.closed)
    if by_text != by_ids and (tags.open in text or tags.close in text or not wanted.tokens.at_hand):
        raise row.error(
            f"{row.name('completion')}: {shown(text)} {_WORDS[by_text]}, but {row.name('token_ids')}: {shown(ids)} "
            f"{_WORDS[by_ids]}",
            "If the text was decoded without special tokens, name the tokenizer, and the ids are decoded: --tokenizer FOLDER.",
        )
    return parts


def _hold(row: Row, wanted: Wanted, column: str, part: Sequence[int]) -> None:
    """Raise `UsageError` if the column's text is not that of the ids `part`, with or without its special tokens."""
    if column not in row:
        return
    text = stripped(completion_of(row) if column == "completion" else row.get(column), wanted.plan.model.tokens.end)[0]
    if not any(bare(text) == bare(wanted.tokens.decode(part, skip=skip)) for skip in (False, True)):
        raise row.differ(column, text, "token_ids", wanted.tokens.decode(part))


def _given(row: Row, column: str, part: Sequence[int], by_text: Parts | None) -> str:
    """The text that nothing but the row says, as far as its ids can tell without a tokenizer."""
    text = row.get(column) if column in row or by_text is None else getattr(by_text, column)
    if part and not bare(text or ""):
        found = "is missing" if text is None else f"is empty, but {len(part)} of its ids are of it"
        raise row.error(
            f"{row.name(column)}: {found}, and there is no tokenizer to decode the ids with", "Add it, or say --tokenizer FOLDER."
        )
    if not part and bare(text or ""):
        said = "never closed its thinking, so it has no answer" if column == "answer" else "has no thinking"
        raise row.error(f"{row.name(column)}: is {shown(text)}, but by its ids this rollout {said}")
    return text or ""


_WORDS = {
    (False, False): "has no thinking",
    (True, False): "never closes its thinking",
    (True, True): "closes its thinking",
    (False, True): "closes a thinking that was never opened",
}
"""(opened, closed) -> what is said of a text or of ids."""
