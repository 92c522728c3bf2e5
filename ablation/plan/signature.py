"""An SSH signature of a lock file (`ssh-keygen -Y`): who vouches for it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ablation.errors import UsageError
from ablation.plan.lock import Lock
from ablation.plan.proofs import FAILED, NOT_PROVEN, PROVEN, Proof, one_line, run_tool

NAMESPACE = "ablation-lock"
"""A signature made for anything else (a commit, an e-mail) does not pass for one of a lock."""
_LIMITS = "when it was signed"
_LARGEST = 1 << 20
"""Bytes: a signature has some hundreds."""


def signature_path(lock: Lock) -> Path:
    """`plans/NAME.lock.sig`."""
    return lock.path.with_name(f"{lock.path.name}.sig")


def sign_lock(lock: Lock, key: Path) -> Path:
    """Sign the lock file with the private (or an agent's public) key in `key`. Raises `UsageError`."""
    path = signature_path(lock)
    if path.exists():
        raise UsageError(f"{path}: the lock is signed already", hint="Move that signature away to sign with another key.")
    if not key.is_file():
        raise UsageError(f"{key}: there is no such key")
    try:  # stdin stays open: ssh-keygen asks for the passphrase of the key
        command = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(lock.path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"ssh-keygen could not be started: {error.strerror}", hint="Install OpenSSH 8.1 or later.") from error
    if result.returncode != 0 or not path.is_file():
        raise UsageError(f"{key}: ssh-keygen could not sign with it: {one_line(result.stderr)}")
    return path


def check_signature(lock: Lock, allowed_signers: Path | None = None) -> Proof:
    """What the signature beside the lock proves.

    `allowed_signers` is a file as in `man ssh-keygen`, section ALLOWED SIGNERS: without it nobody knows whose key it is.
    """
    path = signature_path(lock)
    if not path.exists():
        return Proof("signature", NOT_PROVEN, "the lock has none (`ablation plan sign`)")
    if not path.is_file() or path.stat().st_size > _LARGEST:  # a pipe, or a file with a hole, would hold up who reads it
        return Proof("signature", FAILED, f"{path} is not a signature of this lock file")
    if allowed_signers is not None and not allowed_signers.is_file():
        raise UsageError(f"{allowed_signers}: there is no such file of allowed signers")
    data = lock.path.read_bytes()
    verify = ("ssh-keygen", "-Y", "check-novalidate", "-n", NAMESPACE, "-s", path.resolve())
    code, out, error = run_tool(*verify, cwd=Path("/"), stdin=data)
    if code == 127:
        return Proof("signature", NOT_PROVEN, f"{path} was not checked, because {error}", _LIMITS)
    if code != 0:
        return Proof("signature", FAILED, f"{path} is not a signature of this lock file ({one_line(error or out)})")
    key = re.search(r"SHA256:\S+", out)
    fingerprint = key[0] if key else "an unnamed key"
    if allowed_signers is None:
        says = f"signed with the key {fingerprint}; whose key that is was not checked (--allowed-signers FILE)"
        return Proof("signature", NOT_PROVEN, says, f"{_LIMITS}, or who signed it")
    allowed = allowed_signers.resolve()
    code, out, _ = run_tool("ssh-keygen", "-Y", "find-principals", "-s", path.resolve(), "-f", allowed, cwd=Path("/"))
    names = out.split()
    if code != 0 or not names:
        return Proof("signature", FAILED, f"{path} was made with the key {fingerprint}, which {allowed_signers} does not allow")
    verify = ("ssh-keygen", "-Y", "verify", "-f", allowed, "-I", names[0], "-n", NAMESPACE, "-s", path.resolve())
    code, out, error = run_tool(*verify, cwd=Path("/"), stdin=data)
    if code != 0:
        return Proof("signature", FAILED, f"{path} is not {names[0]}'s signature of this lock file ({one_line(error or out)})")
    return Proof("signature", PROVEN, f"{names[0]} signed this lock with the key {fingerprint}", _LIMITS)
