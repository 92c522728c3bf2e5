"""HTTP to a server that is not ours: bounded in time and size, and what it says is never printed as it came."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ablation.errors import UsageError

if TYPE_CHECKING:
    import httpx2

KEY_VARIABLE = "ABLATION_VLLM_SERVER_KEY"
LONGEST_ANSWER = 16 * 2**20
"""Bytes of an answer or of one event of a stream; those of a server that works are far below."""
LONGEST_MESSAGE = 300
REST_SECONDS = 2.0
"""For the end of a stream after the server said that it was all."""
LONGEST_WAIT = 60.0
"""Seconds that a server may ask to wait before the next try."""
_PASSING = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for what, and how often something is tried."""

    connect: float = 20.0
    answer: float = 120.0
    load: float = 900.0
    idle: float = 1800.0
    """For a new token of a rollout that has begun, or of any rollout."""
    rollout: float = 24 * 3600.0
    """For one try of a rollout, however often something of it still comes."""
    tries: int = 6
    first_pause: float = 1.0
    """Doubles from try to try."""


class Passing(Exception):
    """What may go well the next time. `status`: that of the answer, if there was one; `wait`: seconds that it asks for."""

    def __init__(self, message: str, *, status: int | None = None, wait: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.wait = status, wait

    @property
    def busy(self) -> bool:
        """Whether the server says that it has too much to do."""
        return self.status in (429, 503)


class Denied(Exception):
    """The server will not do it, now or later."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def server_root(address: str) -> str:
    """`address` without a last `/v1`. Raises `UsageError` for one with a query in it."""
    parts = urlsplit(address)
    if parts.query or parts.fragment or "?" in address or "#" in address:
        raise UsageError(f"--server: {parts.scheme}://{parts.netloc}: nothing may follow `?` or `#` in the address of a server")
    return address.rstrip("/").removesuffix("/v1").rstrip("/")


def on_loopback(address: str) -> bool:
    """Whether the server is on this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def checked_key(key: str | None) -> str | None:
    """`key`, or None for none. Raises `UsageError` for one that no header can carry, without the key."""
    if not key:
        return None
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise UsageError(f"{KEY_VARIABLE}: a key has no spaces, line ends or characters beyond ASCII in it")
    return key


class Link:
    """Requests to one server. Use it on one event loop."""

    def __init__(self, address: str, key: str | None, patience: Patience, connections: int) -> None:
        import httpx2

        self.root, self.patience = server_root(address), patience
        self._key = checked_key(key)
        self._client = httpx2.AsyncClient(
            headers=_headers(self._key),
            timeout=httpx2.Timeout(None, connect=patience.connect),  # the whole of each request has a deadline of its own
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=5.0),
            trust_env=not on_loopback(self.root),  # no proxy on the way to this machine
            follow_redirects=False,
        )

    @property
    def has_key(self) -> bool:
        return self._key is not None

    async def get(self, path: str) -> str:
        """The text at `path`. Raises `Passing` or `Denied`."""
        return await self._whole("GET", path, None, self.patience.answer)

    async def post(self, path: str, body: dict[str, Any], seconds: float | None = None) -> str:
        """The whole answer to `body`. Raises `Passing` or `Denied`."""
        return await self._whole("POST", path, body, seconds or self.patience.answer)

    async def _whole(self, method: str, path: str, body: dict[str, Any] | None, seconds: float) -> str:
        try:
            async with asyncio.timeout(seconds), self._response(method, path, body) as response:
                return (await _read(response)).decode(errors="replace")
        except TimeoutError:
            raise Passing(f"no whole answer to {method} {path} within {seconds:g} s") from None

    async def events(self, path: str, body: dict[str, Any]) -> AsyncIterator[Any]:
        """What the server sends one after the other, till it says that this was all. Raises `Passing` or `Denied`.

        There is no deadline: the caller sets one.
        """
        import httpx2

        done = False
        try:
            async with self._response("POST", path, body) as response, asyncio.timeout(None) as rest:
                async for event in httpx2.EventSource(response, max_event_size=LONGEST_ANSWER):
                    if done:
                        continue
                    if event.data == "[DONE]":  # read to its end, the connection is good for the next request
                        done = True
                        rest.reschedule(asyncio.get_running_loop().time() + REST_SECONDS)
                        continue
                    found = self.parsed(event.data)
                    error = found.get("error") if isinstance(found, dict) else None
                    if error is not None:
                        raise self._problem(_status(error), json.dumps(found), None)
                    yield found
        except (Passing, TimeoutError):
            if not done:
                raise

    def parsed(self, text: str) -> Any:
        """`text` as JSON. Raises `Passing`."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise Passing(f"the answer is not JSON: {self.said(text)}") from None

    @asynccontextmanager
    async def _response(self, method: str, path: str, body: dict[str, Any] | None) -> AsyncIterator[httpx2.Response]:
        """A response that is no error."""
        import httpx2

        try:
            async with self._client.stream(method, self.root + path, json=body) as response:
                coding = response.headers.get("content-encoding", "identity")
                if coding != "identity":  # a few compressed bytes can be any number of others
                    raise Passing(f"the answer is compressed ({self.said(coding)}), which was not asked for")
                if response.status_code != 200:
                    async with asyncio.timeout(self.patience.answer):
                        text = (await _read(response)).decode(errors="replace")
                    raise self._problem(response.status_code, text, response.headers.get("retry-after"))
                yield response
        except httpx2.TimeoutException:
            raise Passing(f"no connection within {self.patience.connect:g} s") from None
        except TimeoutError:
            raise
        except httpx2.SSEError as error:
            raise Passing(f"no stream of events came: {self.said(str(error))}") from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError, UnicodeError) as error:
            raise Passing(self.said(str(error)) or type(error).__name__) from None

    def _problem(self, status: int, text: str, retry_after: str | None) -> Exception:
        message = f"HTTP status {status}: {self.said(_message(text)) or 'without a word'}"
        if status in _PASSING:
            return Passing(message, status=status, wait=_seconds(retry_after))
        return Denied(status, message)

    def said(self, text: str) -> str:
        """A server's words on one short line, without the key, other bearers' keys or anything that moves a terminal's cursor."""
        for key in () if self._key is None else (self._key, json.dumps(self._key)[1:-1]):
            text = text.replace(key, "...")  # before anything is cut: a part of it is a key, too
        text = text[: 20 * LONGEST_MESSAGE]
        text = re.sub(r"(?i)\bbearer\s+[^\s\"']+", "Bearer ...", text)
        text = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?", " ", text)
        text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
        return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 3] + "..."

    async def close(self) -> None:
        await self._client.aclose()


def say_goodbye(root: str, key: str | None, path: str, body: dict[str, Any], seconds: float) -> None:
    """One request on no event loop, of which nothing is expected."""
    import httpx2

    with suppress(httpx2.HTTPError, OSError):
        httpx2.post(root + path, json=body, headers=_headers(key), timeout=seconds, trust_env=not on_loopback(root))


def _headers(key: str | None) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity", "User-Agent": "ablation"}
    return headers if key is None else headers | {"Authorization": f"Bearer {key}"}


async def _read(response: httpx2.Response) -> bytes:
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > LONGEST_ANSWER:
            raise Passing(f"an answer of more than {LONGEST_ANSWER} bytes")
    return bytes(data)


def _message(text: str) -> str:
    """What an error's body says, in vLLM's form or as it is."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(found, dict):
        error = found.get("error", found.get("detail", found))
        found = error.get("message", error) if isinstance(error, dict) else error
    return found if isinstance(found, str) else json.dumps(found)


def _status(error: Any) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code <= 599 else 500


def _seconds(retry_after: str | None) -> float:
    """Of a `Retry-After` in seconds; a date is not waited for."""
    try:
        wait = float(retry_after or 0)
    except ValueError:
        return 0.0
    return min(wait, LONGEST_WAIT) if wait > 0 else 0.0  # and none for a NaN
