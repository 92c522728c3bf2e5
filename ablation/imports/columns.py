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

TEXT_PARTS = ("text", "output_text")
"""Kinds of a message's parts that are text which the reader sees."""

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass
class Row:
    """One rollout as a file has it. A column that the file does not have, or has as null, is absent."""

    where: str
    """`FILE:LINE`, for messages."""
    values: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Column -> the name that the file has for it."""

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def name(self, column: str) -> str:
        return self.names.get(column, column)

    def error(self, message: str, hint: str | None = None) -> UsageError:
        return UsageError(f"{self.where}: {message}", hint=hint)

    def differ(self, column: str, value: Any, other: str, right: Any) -> UsageError:
        """Two columns that say one thing and do not agree: nobody can know which of them is right."""
        first, second = apart(value, right)
        name = self.name(column)
        hint = f"They say the same thing twice, so one is wrong, or means another thing (`{name}`): leave it out or rename it."
        return self.error(f"{name}: is {first}, but {self.name(other)} says {second}", hint)


def read_row(where: str, values: Any) -> tuple[Row, set[str]]:
    """The checked row of `values`, and the names of columns that are not used. Raises `UsageError` for a wrong type or name."""
    row = Row(where)
    if not isinstance(values, dict):
        raise row.error("is not an object", "Each line is one JSON object with the columns of runs/README.md.")
    unused = set()
    for name in sorted(values, key=lambda name: (name in ALIASES, name)):  # what is read never hangs on the order of the keys
        value, column = values[name], ALIASES.get(name, name)
        if column not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.8)
            if near:
                raise row.error(f"there is no column `{name}`; did you mean `{near[0]}`?", "Rename it, or leave it out.")
            unused.add(name)
        elif value is not None:
            wanted = COLUMNS[column](value)
            if wanted is not None:
                raise row.error(f"{name}: found {shown(value)}; {wanted}")
            if column in row and _plain(column, row.get(column)) != _plain(column, value):
                raise row.differ(column, row.get(column), name, value)
            row.values.setdefault(column, value)
            row.names.setdefault(column, name)
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
        return (_message(value[0]) or _more(value[0])) if fine else "a list must hold one message, the assistant's"
    return _text(value)


def _more(message: dict[str, Any]) -> str | None:
    """What a completion's message holds that is no text, its thinking for instance: passed over it would be lost."""
    more = [name for name, value in message.items() if name not in ("role", "content") and value]
    content = message["content"]
    parts = content if isinstance(content, list) else []
    more += [str(one.get("type")) for one in parts if one.get("text") is None or one.get("type", "text") not in TEXT_PARTS]
    return f"the message holds `{more[0]}`, too; give `thinking` and `answer` as columns" if more else None


def _message(value: Any) -> str | None:
    """What is wrong with one message: an object whose `content` is a text, a list of parts, or null."""
    if found := fault(value):
        return f"a message {found}"
    content = value.get("content") if isinstance(value, dict) else 0
    texts = [one.get("text") if isinstance(one, dict) else 0 for one in content] if isinstance(content, list) else [content]
    fine = all(one is None or isinstance(one, str) for one in texts)
    return None if fine else "each message must be an object whose `content` is a text or a list of parts with texts"


def _plain(column: str, value: Any) -> Any:
    """`value` in the one form in which two columns of one thing are compared."""
    if column == "finish_reason":
        return FINISH.get(value, value)
    if column in ("prompt", "completion") and isinstance(value, list):
        return "\n".join(message_text(one.get("content")) for one in value)
    return value


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def apart(one: Any, other: Any) -> tuple[str, str]:
    """Both values as they are shown; of long texts the part where they begin to differ."""
    if isinstance(one, str) and isinstance(other, str):
        same = next((place for place, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1), 0)
        place = max(0, same - 10)
        if place:
            return f"...{shown(one[place:])}", f"...{shown(other[place:])}"
    return shown(one), shown(other)


COLUMNS: dict[str, Callable[[Any], str | None]] = {
    "problem": _text,
    "effort": _text,
    "index": _whole,
    "seed": _whole,
    "finish_reason": _text,
    "token_ids": _ids,
    "completion": _completion,
    "thinking": _text,
    "thinking_redacted": _flag,
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
