"""The columns of an imported row: names, types, other trainers' names for them, and errors that name file and line."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablation.errors import UsageError
from ablation.problems.plain import LARGEST, fault, is_number
from ablation.rollouts.values import NEUTRAL, RAW

ALIASES = {
    "input": "prompt",
    "output": "completion",
    "response": "completion",
    "completion_ids": "token_ids",
    "prompt_ids": "prompt_token_ids",
    "stop_reason": "finish_reason",
    "thinking_text": "thinking",
    "answer_text": "answer",
}
"""Name in a dump of TRL, verl or an inference engine, or in a stage of ours -> column."""

FINISH = {"stop": "stop", "eos": "stop", "end_turn": "stop", "length": "length", "max_tokens": "length"}
"""Finish reason, as others name it -> as it is stored."""

SETTINGS = ("temperature", "top_p", "top_k", "max_tokens")
"""Columns that must be the plan's own value where they are there."""

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass
class Row:
    """One rollout as a file has it. A column that the file does not have, or has as null, is absent."""

    where: str
    """`FILE:LINE`, for messages."""
    values: dict[str, Any] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def error(self, message: str, hint: str | None = None) -> UsageError:
        return UsageError(f"{self.where}: {message}", hint=hint)


def read_row(where: str, values: Any) -> tuple[Row, set[str]]:
    """The checked row of `values`, and the names of columns that are not used. Raises `UsageError` for a wrong type or name."""
    row = Row(where)
    if not isinstance(values, dict):
        raise row.error("is not an object", "Each line is one JSON object with the columns of runs/README.md.")
    unused = set()
    for name, value in values.items():
        column = ALIASES.get(name, name)
        if column not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.8)
            if near:
                raise row.error(f"there is no column `{name}`; did you mean `{near[0]}`?", "Rename it, or leave it out.")
            unused.add(name)
        elif column == name or column not in values:
            wanted = COLUMNS[column](value)
            if value is not None and wanted is not None:
                raise row.error(f"{name}: found {_shown(value)}; {wanted}")
            if value is not None:
                row.values[column] = value
    return row, unused


def check_even(rows: Sequence[Row]) -> None:
    """Raise `UsageError` if a column is there in some rows and not in others: that would be a gap nobody sees."""
    names = (
        "seed",
        "logprobs",
        "top_entropy",
        "top_mass",
        "token_ids",
        "prompt_token_ids",
        "prompt_sha256",
        "prompt",
        "finish_reason",
    )
    for name in names:
        with_it = sum(name in row for row in rows)
        if 0 < with_it < len(rows):
            row = next(row for row in rows if name not in row)
            raise row.error(f"{name}: is missing; {with_it} of {len(rows)} rows have it", "Give it in every row, or in none.")


def message_text(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or [] if isinstance(part, dict))


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "it must be a text"
    found = fault(value)
    return None if found is None else f"it {found}"


def _number(value: Any) -> str | None:
    return None if is_number(value) else "it must be a number"


def _neutral(wanted: Any) -> Callable[[Any], str | None]:
    return lambda value: None if value == wanted else f"only rollouts of the plan count, in which it is {json.dumps(wanted)}"


def _whole(value: Any) -> str | None:
    fine = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return None if fine else "it must be a whole number from 0 on"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "it must be true or false"


def _ids(value: Any) -> str | None:
    fine = isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 31 for one in value)
    return None if fine else "it must be a list of token ids"


def _floats(words: str, fits: Callable[[float], bool]) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        numbers = isinstance(value, list) and all(type(one) in (int, float) for one in value)
        return None if numbers and all(fits(one) for one in value) else f"it must be a list of numbers, {words}"

    return check


def _prompt(value: Any) -> str | None:
    if isinstance(value, list):
        return next((found for one in value if (found := _message(one))), None)
    return "it must be a text or a list of messages" if not isinstance(value, str) else _text(value)


def _completion(value: Any) -> str | None:
    if isinstance(value, list):
        fine = len(value) == 1 and isinstance(value[0], dict) and value[0].get("role") == "assistant"
        return _message(value[0]) if fine else "a list must hold one message, the assistant's"
    return _text(value)


def _message(value: Any) -> str | None:
    """What is wrong with one message: an object whose `content` is a text, a list of parts, or null."""
    if found := fault(value):
        return f"a message {found}"
    content = value.get("content") if isinstance(value, dict) else 0
    texts = [one.get("text") if isinstance(one, dict) else 0 for one in content] if isinstance(content, list) else [content]
    fine = all(one is None or isinstance(one, str) for one in texts)
    return None if fine else "each message must be an object whose `content` is a text or a list of parts with texts"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


COLUMNS: dict[str, Callable[[Any], str | None]] = {
    "problem": _text,
    "effort": _text,
    "index": _whole,
    "seed": _whole,
    "finish_reason": _text,
    "token_ids": _ids,
    "completion": _completion,
    "thinking": _text,
    "answer": _text,
    "logprobs": _floats("raw logprobs in nats, none above 0 or below -1e30", lambda one: -1e30 <= one <= 1e-6),
    "top_entropy": _floats("from 0 on", lambda one: 0 <= one <= LARGEST),
    "top_mass": _floats("from 0 to 1", lambda one: 0 <= one <= 1 + 1e-6),
    "prompt_token_ids": _ids,
    "prompt": _prompt,
    "prompt_sha256": lambda value: None if isinstance(value, str) and _DIGEST.fullmatch(value) else "it must be a SHA-256 in hex",
    "prompt_length": _whole,
    "prompt_opens_thinking": _flag,
    "logprob_kind": lambda value: None if value == RAW else "only `raw` logprobs count, of the full vocabulary at temperature 1",
    **dict.fromkeys(SETTINGS, _number),
    **{name: _neutral(value) for name, value in NEUTRAL.items() if name != "ignore_eos"},  # it may be among the end tokens
}
"""Column -> what is wrong with a value, None if nothing is."""
