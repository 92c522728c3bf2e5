"""Against a local authority made with openssl, which also answers over HTTP."""

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ablation.errors import IncompleteError, IntegrityError, UsageError
from ablation.plan import timestamp as module
from ablation.plan.lock import lock_plan, read_lock
from ablation.plan.timestamp import (
    ask_for_timestamp,
    check_timestamp,
    owed_path,
    request_path,
    response_path,
    write_request,
)
from tests.plan.proofs import needs, relock, tool

pytest.importorskip("rfc3161_client", reason="the extra `proofs` is not installed")
pytestmark = needs("openssl")

CONFIG = """
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[stamp]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = critical, timeStamping
keyUsage = critical, digitalSignature
[tsa]
default_tsa = own
[own]
serial = serial
signer_digest = sha256
default_policy = 1.3.6.1.4.1.99999.1
digests = sha256, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
"""


class Authority:
    """A root and a stamping certificate; `answer` makes a response to a request file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "config").write_text(CONFIG)
        (folder / "serial").write_text("01\n")
        new = ("openssl", "req", "-config", "config", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        self._run(
            *new, "-x509", "-days", "30", "-subj", f"/CN={name} root", "-extensions", "ca", "-keyout", "ca.key", "-out", "ca.pem"
        )
        self._run(*new, "-subj", f"/CN={name}", "-keyout", "tsa.key", "-out", "tsa.csr")
        sign = ("openssl", "x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
        self._run(*sign, "-in", "tsa.csr", "-extfile", "config", "-extensions", "stamp", "-out", "tsa.pem")
        self.root = folder / "ca.pem"

    def answer(self, request: Path, response: Path) -> None:
        reply = ("openssl", "ts", "-reply", "-config", "config", "-section", "own")
        self._run(*reply, "-queryfile", request, "-inkey", "tsa.key", "-signer", "tsa.pem", "-out", response)

    def _run(self, *command) -> None:
        tool(*command, cwd=self.folder)


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "own", "stamps")


@pytest.fixture
def lock(plan_path):
    return lock_plan(plan_path)


@pytest.fixture
def stamped(lock, authority):
    write_request(lock)
    authority.answer(request_path(lock), response_path(lock))
    return lock


@pytest.fixture
def served(authority, tmp_path):
    """(URL, list of what was asked); `answers` may be replaced by a function of the request's bytes."""

    class Handler(BaseHTTPRequestHandler):
        answers = None

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Content-Type"] == "application/timestamp-query"
            (tmp_path / "asked.tsq").write_bytes(data)
            authority.answer(tmp_path / "asked.tsq", tmp_path / "answer.tsr")
            reply = (tmp_path / "answer.tsr").read_bytes()
            if Handler.answers is not None:
                reply = Handler.answers(reply)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/tsa", Handler
    server.shutdown()
    server.server_close()


def test_a_timestamp_is_verified_offline_against_the_root(stamped, authority):
    proof = check_timestamp(stamped, None, authority.root)
    assert proof.state == "proven" and "saw this lock at 20" in proof.says and proof.limits == "who made the lock"
    assert check_timestamp(stamped, "2020-01-01T00:00:00+00:00", authority.root).state == "not proven"
    assert check_timestamp(stamped, "2099-01-01T00:00:00+00:00", authority.root).state == "proven"


def test_openssl_itself_verifies_it(stamped, authority):
    verify = ("openssl", "ts", "-verify", "-data", stamped.path, "-in", response_path(stamped), "-CAfile", authority.root)
    assert "Verification: OK" in tool(*verify, cwd=authority.folder)


def test_without_a_root_nothing_is_proven(stamped):
    proof = check_timestamp(stamped, None)
    assert proof.state == "not proven" and "--tsa-ca" in proof.says


def test_plan_and_lock_edited_together_are_caught(stamped, authority, plan_path, monkeypatch):
    for root in (authority.root, None):
        again = relock(plan_path)
        proof = check_timestamp(again, None, root)
        assert proof.state == "failed" and "timestamp of another lock" in proof.says
    monkeypatch.setattr(module, "find_spec", lambda name: None)  # and where the extra is not installed
    assert check_timestamp(read_lock(plan_path), None, authority.root).state == "failed"


def test_another_authoritys_word_does_not_count(stamped, tmp_path):
    other = Authority(tmp_path / "other", "stamps")  # the same names, other keys
    proof = check_timestamp(stamped, None, other.root)
    assert proof.state == "failed" and "does not verify against" in proof.says


def test_a_changed_response_is_caught(stamped, authority):
    data = bytearray(response_path(stamped).read_bytes())
    year = data.index(b"20", data.index(b"\x18\x0f"))  # GeneralizedTime of 15 characters: genTime
    data[year + 1] += 1
    response_path(stamped).write_bytes(bytes(data))
    assert check_timestamp(stamped, None, authority.root).state == "failed"


def test_asking_over_http_keeps_the_response(lock, served, authority):
    url, _ = served
    assert ask_for_timestamp(lock, url) == response_path(lock)
    assert check_timestamp(lock, None, authority.root).state == "proven"
    with pytest.raises(UsageError, match="has a timestamp already"):
        ask_for_timestamp(lock, url)


def test_an_answer_to_another_request_is_refused(lock, served, authority, tmp_path):
    url, handler = served
    (tmp_path / "other").write_text("other")
    tool("openssl", "ts", "-query", "-data", "other", "-sha256", "-cert", "-out", "other.tsq", cwd=tmp_path)
    authority.answer(tmp_path / "other.tsq", tmp_path / "other.tsr")
    handler.answers = lambda _: (tmp_path / "other.tsr").read_bytes()
    with pytest.raises(IntegrityError, match="is to another request than ours"):
        ask_for_timestamp(lock, url)
    handler.answers = lambda _: b"<html>"
    with pytest.raises(IntegrityError, match="is not a timestamp response"):
        ask_for_timestamp(lock, url)
    assert not response_path(lock).exists()


def test_an_authority_out_of_reach_is_owed_and_can_answer_later(lock, authority):
    with pytest.raises(IncompleteError, match="recorded as owed"):
        ask_for_timestamp(lock, "http://127.0.0.1:9/")
    proof = check_timestamp(lock, None, authority.root)
    assert proof.state == "owed" and "could not be reached" in proof.says
    authority.answer(request_path(lock), response_path(lock))
    assert check_timestamp(lock, None, authority.root).state == "proven"


def test_a_request_alone_is_owed_too(lock):
    write_request(lock)
    assert check_timestamp(lock, None).state == "owed"
    text = tool("openssl", "ts", "-query", "-in", request_path(lock), "-text", cwd=lock.path.parent)
    assert "Hash Algorithm: sha256" in text and "Certificate required: yes" in text
    owed_path(lock).unlink()
    assert check_timestamp(lock, None).says.startswith("the lock has none")


def test_bad_input_is_one_line(lock, stamped, tmp_path):
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(UsageError, match="is not a PEM file"):
        check_timestamp(lock, None, tmp_path / "no.pem")
    response_path(lock).unlink()
    with pytest.raises(UsageError, match="is not an http or https address"):
        ask_for_timestamp(lock, f"file://{os.devnull}")
