"""An RFC 3161 timestamp of a lock file: an authority's word that it existed at a time.

Asking needs the network; checking does not. With the extra `proofs` (package rfc3161-client) a response is checked against
the certificates of a CA file. Without it, only whether the response is about this lock at all.
"""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from ablation.errors import IncompleteError, IntegrityError, UsageError
from ablation.files import parse_json, write_bytes, write_json
from ablation.plan.lock import Lock
from ablation.plan.proofs import FAILED, NOT_PROVEN, OWED, PROVEN, Proof, before_first_event

_LIMITS = "who made the lock"
_EXTRA = "pip install -e '.[proofs]'"
_MEDIA_TYPE = "application/timestamp-query"


def response_path(lock: Lock) -> Path:
    """`plans/NAME.lock.tsr`: the authority's response, DER as RFC 3161 has it."""
    return lock.path.with_name(f"{lock.path.name}.tsr")


def request_path(lock: Lock) -> Path:
    """`plans/NAME.lock.tsq`: a request that has had no response yet."""
    return lock.path.with_name(f"{lock.path.name}.tsq")


def owed_path(lock: Lock) -> Path:
    """`plans/NAME.lock.owed.json`: since when and why a timestamp is owed."""
    return lock.path.with_name(f"{lock.path.name}.owed.json")


def write_request(lock: Lock) -> Path:
    """Write the request that an authority answers, and that the timestamp is owed. Raises `UsageError`."""
    _refuse_second(lock)
    write_bytes(request_path(lock), _request(lock).as_bytes())
    _owe(lock, "the request was written and not sent from here")
    return request_path(lock)


def ask_for_timestamp(lock: Lock, url: str, *, timeout: float = 30) -> Path:
    """Send a request to the authority at `url` and keep its response.

    Raises `IncompleteError`, after recording that the timestamp is owed, if the authority cannot be reached or refuses, and
    `IntegrityError` if it answers something else than what was asked.
    """
    from rfc3161_client import PKIStatus, decode_timestamp_response

    _refuse_second(lock)
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url: `{url}` is not an http or https address")
    request = _request(lock)
    query = urllib.request.Request(url, data=request.as_bytes(), headers={"Content-Type": _MEDIA_TYPE}, method="POST")
    try:
        with urllib.request.urlopen(query, timeout=timeout) as reply:
            data = reply.read(1 << 20)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = str(getattr(error, "reason", None) or error)
        write_bytes(request_path(lock), request.as_bytes())
        _owe(lock, f"{url} could not be reached: {reason}")
        raise IncompleteError(
            f"{url}: no timestamp: {reason}; it is recorded as owed in {owed_path(lock)}",
            hint=f"Send {request_path(lock)} later and keep the response as {response_path(lock)}, or run this command again.",
        ) from None
    try:
        response = decode_timestamp_response(data)
        granted = PKIStatus(response.status) == PKIStatus.GRANTED  # granted with changes is not what was asked
        nonce = response.tst_info.nonce if granted else None
    except ValueError as error:
        raise IntegrityError(f"{url}: its answer is not a timestamp response ({error})") from None
    if not granted:
        words = "; ".join(response.status_string) or f"status {response.status}"
        _owe(lock, f"{url} refused: {words}")
        raise IncompleteError(f"{url}: the authority refused: {words}; the timestamp is recorded as owed")
    if nonce != request.nonce or not _about(data, lock.path.read_bytes()):
        raise IntegrityError(f"{url}: its answer is to another request than ours; nothing was written")
    write_bytes(response_path(lock), data)
    request_path(lock).unlink(missing_ok=True)
    owed_path(lock).unlink(missing_ok=True)
    return response_path(lock)


def check_timestamp(lock: Lock, began: str | None, ca_file: Path | None = None) -> Proof:
    """What the response beside the lock proves, offline.

    `ca_file` is PEM with the authority's root, and intermediates if the response lacks them. `began`: the run's first event.
    """
    path = response_path(lock)
    if not path.exists():
        owed = _owed(lock)
        if owed is None:
            return Proof("timestamp", NOT_PROVEN, "the lock has none (`ablation plan timestamp`)")
        return Proof("timestamp", OWED, f"since {owed.get('since')}: {owed.get('reason')}")
    data, locked = path.read_bytes(), lock.path.read_bytes()
    if not _about(data, locked):
        return Proof("timestamp", FAILED, f"{path} is a timestamp of another lock than the one that is here")
    if find_spec("rfc3161_client") is None:
        return Proof("timestamp", NOT_PROVEN, f"{path} names this lock; its signature was not checked: {_EXTRA}", _LIMITS)
    from rfc3161_client import VerificationError, VerifierBuilder, decode_timestamp_response

    try:
        response = decode_timestamp_response(data)
        moment = response.tst_info.gen_time.astimezone(UTC)
    except ValueError as error:
        return Proof("timestamp", FAILED, f"{path} is not a timestamp response ({error})")
    said = moment.isoformat(timespec="seconds")
    if ca_file is None:
        says = f"{path} names this lock and {said}; its signature was not checked (--tsa-ca FILE)"
        return Proof("timestamp", NOT_PROVEN, says, f"{_LIMITS}, or that an authority said so")
    builder = VerifierBuilder()
    roots, others = _certificates(ca_file)
    for certificate in roots:
        builder = builder.add_root_certificate(certificate)
    for certificate in others:
        builder = builder.add_intermediate_certificate(certificate)
    try:
        builder.build().verify_message(response, locked)
    except (VerificationError, ValueError) as error:
        return Proof("timestamp", FAILED, f"{path} does not verify against {ca_file} ({error})")
    holds, words = before_first_event(moment, began)
    says = f"an authority of {ca_file} saw this lock at {said}, {words}"
    return Proof("timestamp", PROVEN if holds else NOT_PROVEN, says, _LIMITS)


def _request(lock: Lock):
    if find_spec("rfc3161_client") is None:
        raise UsageError("a timestamp needs the package rfc3161-client", hint=_EXTRA)
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    return TimestampRequestBuilder().data(lock.path.read_bytes()).hash_algorithm(HashAlgorithm.SHA256).build()


def _refuse_second(lock: Lock) -> None:
    if response_path(lock).exists():
        raise UsageError(f"{response_path(lock)}: the lock has a timestamp already", hint="The earliest one is worth the most.")


def _owe(lock: Lock, reason: str) -> None:
    since = (_owed(lock) or {}).get("since") or datetime.now(UTC).isoformat(timespec="seconds")
    write_json(owed_path(lock), {"lock": lock.path.name, "since": since, "reason": reason})


def _owed(lock: Lock) -> dict[str, str] | None:
    try:
        content = parse_json(owed_path(lock).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        content = None
    return content if isinstance(content, dict) else {"reason": f"{owed_path(lock)} is not readable"}


def _about(response: bytes, locked: bytes) -> bool:
    """Whether the response holds a digest of the lock: the message imprint lies open in it, as an octet string."""
    return any(getattr(hashlib, name)(locked).digest() in response for name in ("sha256", "sha384", "sha512"))


def _certificates(ca_file: Path) -> tuple[list, list]:
    """(self-signed, other) certificates of a PEM file."""
    from cryptography.x509 import load_pem_x509_certificates

    try:
        found = load_pem_x509_certificates(ca_file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{ca_file}: is not a PEM file of certificates ({error})") from None
    roots = [one for one in found if one.issuer == one.subject]
    if not roots:
        raise UsageError(f"{ca_file}: has no root certificate (one that signed itself)")
    return roots, [one for one in found if one.issuer != one.subject]
