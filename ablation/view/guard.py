"""Who may ask, and what every answer carries.

- A request must name this server as its host, or a page elsewhere could have its name point here (DNS rebinding).
- Beyond the loopback interface everybody needs the token: once in the address, from then on in a cookie that no script can read.
- What changes something is a POST from a page of this server.
- Answers are kept nowhere, run no script but the package's own, load nothing from elsewhere and tell nobody where a reader was.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

Scope = dict[str, Any]
COOKIE = "ablation_view"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with `no-referrer` a browser does not say where a form of ours comes from
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_HOST = re.compile(r"(\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(:[0-9]{1,5})?")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches what is bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """The outermost part of the application. `names`: hosts by which it may be called, beside the loopback ones."""

    def __init__(self, app: Any, *, names: tuple[str, ...] = (), addresses: bool = False, token: str | None = None) -> None:
        self.app, self.token = app, token
        self.names = {one.lower() for one in (*LOOPBACK, *names)}
        self.addresses = addresses
        """Any address (not a name) will do: what is bound to all interfaces has many, and no page can rebind one."""
        self._pass = "" if token is None else hashlib.sha256(f"cookie {token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        headers = dict(pairs)

        async def carried(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [pair for pair in message.get("headers", []) if pair[0].decode().lower() not in HEADERS]
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = message | {"headers": own + more}
            await send(message)

        names = [name for name, _ in pairs]
        if any(names.count(one) > 1 for one in ("host", "origin", "sec-fetch-site")):  # which of them would count?
            return await _say(carried, 400, "A header that can be there once is there twice, so nothing was done.")
        refused = self._refused(scope, headers)
        if refused is not None:
            return await _say(carried, *refused)
        if self.token is not None and not self._known(headers):
            return await self._let_in(scope, carried)
        return await self.app(scope, receive, carried)

    def _refused(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._is_host(host):
            return 421, "This server does not go by that name. Use the address that it printed when it started."
        if scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] != "POST":
            return 405, "There is nothing to do that with."
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if (origin is not None and origin.partition("://")[2] != host) or site not in (None, "same-origin"):
            return 403, "This did not come from a page of this server, so nothing was done."
        return None

    def _is_host(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found["v6"] or found["name"]
        if name in self.names:
            return True
        try:
            return self.addresses and bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def _known(self, headers: dict[str, str]) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode("utf-8", "surrogatepass"), self._pass.encode())

    async def _let_in(self, scope: Scope, send: Any) -> None:
        """With the right token: a cookie, and the same address without the token."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == "token"), "")
        if not hmac.compare_digest(given.encode(), str(self.token).encode()):
            return await _say(send, 403, "This needs the address with its token, as it was printed when the server started.")
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        place = "/" + quote(scope["path"].lstrip("/")) + (f"?{rest}" if rest else "")
        cookie = f"{COOKIE}={self._pass}; HttpOnly; SameSite=Strict; Path=/"
        return await _say(send, 303, "", (b"location", place.encode()), (b"set-cookie", cookie.encode()))


async def _say(send: Any, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = f"{text}\n".encode()
    start = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
