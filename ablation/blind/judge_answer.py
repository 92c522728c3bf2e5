"""A server's answer to one chat completion: waited for so long and no longer, and taken only with the types of the protocol."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Thread
from typing import Any

_LONGEST_REPLY = 20_000
"""Characters of a reply that are kept; a longer one is cut in the record and unparsed in any case."""
_MOST_TOKENS = 2**53


class NoAnswer(ValueError):
    """What came is no chat completion. Nothing that a judge said is in it, so it is no reply."""


def within(seconds: float, request: Callable[[], bytes]) -> bytes:
    """What `request` returns or raises; `TimeoutError` after `seconds`, however slowly something is still coming.

    A client's own timeout is one of each read: a server that sends a byte now and then never meets it.
    """
    came: list[bytes] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            came.append(request())
        except BaseException as error:  # it is raised in the thread that waits
            failed.append(error)

    thread = Thread(target=run, daemon=True)  # a request that was given up holds nobody at the end of the program
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not came:
        raise TimeoutError(f"no whole reply within {seconds:g} seconds (--timeout)")
    return came[0]


def said_of(data: bytes) -> dict[str, Any]:
    """The reply in the server's answer `data`, and what the server says of it. Raises `NoAnswer`."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise NoAnswer("the server's answer is nested too deeply") from None
    except ValueError:
        raise NoAnswer(f"the server's answer is not JSON: {data[:200].decode(errors='replace')}") from None
    choices = found.get("choices") if isinstance(found, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):  # another server's page, or an error sent as a success
        raise NoAnswer(f"the server's answer has no reply in it: {_short(found)}")
    content, refusal = _text(message, "content"), _text(message, "refusal")
    thinking = message.get("reasoning_content") or message.get("reasoning")
    return {
        "reply": _kept(content),
        "refusal": refusal,
        "thinking": _kept(thinking),
        "finish_reason": _kept(_text(choice, "finish_reason")),
        "served_model": _kept(found.get("model")),
        "system_fingerprint": _kept(found.get("system_fingerprint")),
        "tokens": _tokens(found.get("usage")),
    }


def _text(where: dict[str, Any], name: str) -> str | None:
    value = where.get(name)
    if value is not None and not isinstance(value, str):
        raise NoAnswer(f"the server's answer has a `{name}` that is no text: {_short(value)}")
    return value


def _tokens(usage: Any) -> dict[str, int | None] | None:
    if usage is None:
        return None
    if not isinstance(usage, dict):
        raise NoAnswer(f"the server's answer has a `usage` that is no object: {_short(usage)}")
    found = {name: usage.get(f"{name}_tokens") for name in ("prompt", "completion")}
    for name, value in found.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_TOKENS):
            raise NoAnswer(f"the server's answer has a `{name}_tokens` that is no number of tokens: {_short(value)}")
    return found


def _short(value: Any) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= 200 else text[:197] + "..."


def _kept(text: Any) -> str | None:
    """A server's text as it can be stored: halves of characters are replaced."""
    return text[:_LONGEST_REPLY].encode(errors="replace").decode() if isinstance(text, str) else None
