"""What the tests of proofs share: a plan and its lock made anew together, keys, and the programs that they need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ablation.plan.choose import lock_path
from ablation.plan.lock import Lock, lock_plan, verify_lock


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def relock(plan: Path) -> Lock:
    """What a forger does: edit a limit, throw the lock away and lock again. The two fit each other."""
    lock_path(plan).unlink()
    plan.write_text(plan.read_text().replace("limit: -21", "limit: -30"))
    lock_plan(plan)
    return verify_lock(plan, resources=True).lock


def tool(*command: str | Path, cwd: Path, **options) -> str:
    """Output of an outside program that must succeed."""
    result = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def make_key(folder: Path, name: str) -> Path:
    """An SSH key without a passphrase."""
    tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name, cwd=folder)
    return folder / name


def allow(folder: Path, who: str, key: Path) -> Path:
    """A file of allowed signers with one in it."""
    path = folder / "allowed_signers"
    kind, value = key.with_suffix(".pub").read_text().split()[:2]
    path.write_text(f"{who} {kind} {value}\n")
    return path
