"""Hosts, tokens, origins and headers, by requests as a browser or somebody else would send them."""

from __future__ import annotations

import re
import socket
import time

import pytest
from starlette.testclient import TestClient

from ablation.view.app import create_app
from ablation.view.guard import HEADERS, is_loopback
from ablation.view.library import Library
from tests.view import made
from tests.view.browser import server

HERE = "http://127.0.0.1:8412"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    root = tmp_path_factory.mktemp("guard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATION_CACHE", str(root / "cache"))
        made.make(root)
        yield Library(root / "runs")


def client(library, base=HERE, **guard):
    return TestClient(create_app(library, **guard), base_url=base, follow_redirects=False)


@pytest.mark.parametrize("host", ["127.0.0.1:8412", "localhost:8412", "LOCALHOST", "[::1]:8412", "127.0.0.1"])
def test_names_of_this_machine(library, host):
    assert client(library).get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8412",
        "evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.7:8412",
        "",
        "[::2]:8412",
        "127.0.0.2",
        "[::1].evil.example",
        "[::1]evil.example:80",
        "127.0.0.1:80@evil.example",
        "localhost:evil.example",
        "evil.example, localhost",
        "localhost:",
        "localhost:80:80",
        "localhost\t",
        "127.1",
        "0.0.0.0",
    ],
)
def test_any_other_name_is_refused_before_anything_is_looked_at(library, host):
    answer = client(library).get("/", headers={"host": host})
    assert answer.status_code == 421 and "small" not in answer.text
    assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]


def test_a_name_that_was_given_and_addresses_where_all_interfaces_are_bound(library):
    named = client(library, names=("gpu-7.lab",))
    assert named.get("/", headers={"host": "gpu-7.lab:8412"}).status_code == 200
    everywhere = client(library, addresses=True)
    assert everywhere.get("/", headers={"host": "192.0.2.7:8412"}).status_code == 200
    assert everywhere.get("/", headers={"host": "evil.example:8412"}).status_code == 421


def test_the_token_is_in_the_address_once_and_then_in_a_cookie(library):
    one = client(library, token="s3cret-token")
    for path in ("/", "/study/small", "/static/view.css", "/read", "/?token=", "/?token=wrong"):
        answer = one.get(path)
        assert answer.status_code == 403 and "small" not in answer.text, path
    let_in = one.get("/study/small?a=1&token=s3cret-token")
    assert let_in.status_code == 303 and let_in.headers["location"] == "/study/small?a=1"
    cookie = let_in.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "s3cret-token" not in cookie
    assert one.get("/study/small").status_code == 200  # by the cookie
    assert client(library, token="another").get("/", headers={"cookie": cookie.partition(";")[0]}).status_code == 403


def test_a_redirect_never_leaves_this_server(library):
    answer = client(library, token="t").get("http://127.0.0.1:8412//evil.example/?token=t")
    assert answer.status_code == 303 and not answer.headers["location"].startswith("//")


@pytest.mark.parametrize(
    "path", ["/", "/study/small", "/study/small/rollouts", "/static/view.js", "/read", "/nothing", "/study/none"]
)
def test_every_answer_carries_the_headers(library, path):
    answer = client(library).get(path)
    for name, value in HEADERS.items():
        assert answer.headers.get_list(name) == [value], (path, name)
    assert "etag" not in answer.headers and "last-modified" not in answer.headers


def test_the_policy_lets_no_script_style_or_address_of_others_in(library):
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy and "data:" not in policy
    for path in ("/", "/study/small", "/study/small/rollouts", "/study/small/rules", "/read"):
        page = client(library).get(path).text
        assert not re.search(r"<script(?![^>]*src=\"/static/)", page) and " style=" not in page and "<style" not in page, path
        assert not re.search(r"\son[a-z]+=", page) and "//" not in re.sub(r"<!doctype.*?>", "", page.replace("</", "<")), path


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
)
def test_a_form_of_another_page_is_refused(library, headers):
    assert client(library).post("/read/1", data={"what": "begin"}, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "twice",
    [
        ("host", "evil.example", "127.0.0.1:8412"),
        ("origin", "http://evil.example", HERE),
        ("sec-fetch-site", "none", "same-origin"),
    ],
)
def test_a_header_that_is_there_twice_is_refused(library, twice):
    """Servers differ in which of them counts."""
    name, *values = twice
    for pair in (values, values[::-1]):
        answer = client(library).post("/read/1", headers=[(name, one) for one in pair])
        assert answer.status_code == 400 and "twice" in answer.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_there_is_nothing_else_to_do(library, method):
    assert client(library).request(method, "/").status_code == 405


@pytest.mark.parametrize("path", ["/", "/study/small", "/study/small/rollouts", "/static/view.css"])
def test_pages_take_no_post(library, path):
    assert client(library).post(path, headers={"origin": HERE}).status_code == 405


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/..%2f..%2fapp.py", "/static/guard.py", "/static/%2e%2e/app.py", "/study/..%2f..%2fetc"]
)
def test_no_file_but_the_packages_own(library, path):
    assert client(library).get(path).status_code == 404


def test_hosts_that_only_this_machine_reaches():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.4", "example.org", "")))


@pytest.mark.parametrize("cookie", ['ablation_view="\xe9"', 'ablation_view="\\351"', "ablation_view=;;=", 'ablation_view="'])
def test_a_cookie_that_is_none_of_ours_is_no_token(library, cookie):
    answer = client(library, token="s3cret-token").get("/", headers={"cookie": cookie.encode("latin-1")})
    assert answer.status_code == 403 and answer.headers["content-security-policy"] == HEADERS["content-security-policy"]


def test_what_no_browser_of_ours_sends_to_a_real_server(library, tmp_path):
    """Half a form, an upgrade to a socket, a host in the request line: an answer, no traceback and nothing done."""
    with server(library.place, cache=tmp_path) as address:  # it fails if the server says `Traceback`
        port = int(address.rstrip("/").rpartition(":")[2])

        def ask(text: str) -> str:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
                line.sendall(text.replace("\n", "\r\n").encode())
                return line.recv(65536).decode()

        here = f"Host: 127.0.0.1:{port}\nConnection: close\n"
        with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
            line.sendall(f"POST /read/1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 100\r\n\r\nform=".encode())
            time.sleep(0.3)
        key = "Upgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n\n"
        upgraded = ask(f"GET /studies HTTP/1.1\nHost: evil.example\nConnection: Upgrade\n{key}")
        assert upgraded.startswith("HTTP/1.1 421") and "content-security-policy" in upgraded
        assert ask(f"GET http://evil.example/studies HTTP/1.1\n{here}\n").startswith("HTTP/1.1 ")
        assert ask(f"HEAD /read HTTP/1.1\n{here}\n").startswith("HTTP/1.1 200")
        assert ask(f"GET /studies?{'a=b&' * 15000} HTTP/1.1\n{here}\n").startswith("HTTP/1.1 ")
        time.sleep(0.3)


@pytest.mark.parametrize(
    "path", ["/read/1%0AERROR:%20the%20key%20was%20opened", "/read/%0d%0a%1b%5b31mred", "/read/%E2%80%AE%00"]
)
def test_what_the_terminal_says_of_an_address_is_one_line(library, path, capsys):
    assert client(library).get(path).status_code == 404
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("\n") and "\r" not in said and "\x1b" not in said and "\u202e" not in said
