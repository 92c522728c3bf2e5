"""What an error of the service means: worth another try, a client that is gone, a key, money, or a refusal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["wait", "lost", "key", "money", "refused"]
WAITING = frozenset({408, 409, 425, 429})
"""Answers of a server that is busy."""
GONE = ("not loaded", "not found", "expired", "no longer", "has finished", "poisoned")
"""Words of an answer about a model, future or session that the server had and has no more: it was started again."""
FULL = ("maximum number of lora adapters",)
"""Words of a server that has no room for another adapter until it lets go of those of a run that ended."""
_KEY = re.compile(r"(tml-|eyJ)[\w.\-]+")


@dataclass(frozen=True)
class Trouble:
    """`words`: one line for a person, without a key."""

    kind: Kind
    words: str


def understand(error: BaseException) -> Trouble | None:
    """What an error of the client means; None for one that is not of the service: a bug, which is raised as it is."""
    import httpx
    import tinker

    status, said = _answer(error)
    words = one_line(said or str(error) or type(error).__name__)
    lower = words.lower()
    if any(one in lower for one in FULL):
        return Trouble("wait", "it has no room for another adapter")
    if status is not None:
        return Trouble(_by_status(status, lower), f"{words} (HTTP {status})" if str(status) not in words else words)
    connection = (tinker.APIConnectionError, httpx.TransportError, TimeoutError, ConnectionError)
    if any(isinstance(one, connection) for one in _chain(error)):
        return Trouble("wait", words)
    if isinstance(error, tinker.RequestFailedError):
        return Trouble("lost" if any(one in lower for one in GONE) else "refused", words)
    if isinstance(error, tinker.TinkerError):
        return Trouble("key" if "api_key" in lower or "api key" in lower else "lost", words)
    if (
        type(error).__module__.startswith("tinker")
        or "poisoned" in lower
        or (isinstance(error, RuntimeError) and "is closed" in lower)
    ):
        return Trouble("lost", words)
    return None


def _by_status(status: int, lower: str) -> Kind:
    if status in (401, 403):
        return "key"
    if status == 402:
        return "money"
    if status in WAITING or status >= 500:
        return "wait"
    if status in (404, 410) or any(one in lower for one in GONE):
        return "lost"
    return "refused"


def _answer(error: BaseException) -> tuple[int | None, str | None]:
    """(status, what the server said) of the answer that an error came from."""
    import httpx
    import tinker

    for one in _chain(error):
        if isinstance(one, httpx.HTTPStatusError):
            return one.response.status_code, f"download: {one.response.reason_phrase}"
        if isinstance(one, tinker.APIStatusError):
            body: Any = one.body
            said = body.get("detail") or body.get("error") or body.get("message") if isinstance(body, dict) else None
            return one.status_code, said if isinstance(said, str) else str(one)
    return None, None


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found


def one_line(text: str, most: int = 300) -> str:
    """One line for a terminal; what may be a key is left out."""
    line = " ".join(_KEY.sub("(key)", text).split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in line)
    return printable if len(printable) <= most else f"{printable[: most - 3]}..."
