"""The versions that are part of a run's record: a worker must have those of the driver."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import ablation
from ablation.files import sha256_bytes, sha256_file
from ablation.study.environment import PACKAGES

PROGRAM = "ablation's files"
GRADERS = ("math-verify", "latex2sympy2_extended", "sympy", "reasoning-gym", "regex", "jinja2")
"""Packages that decide about grades and prompts."""


@cache
def versions() -> dict[str, str | None]:
    """Of this process: python, the digest of this program's source, and each package; None where one is missing."""
    found: dict[str, str | None] = {"python": platform.python_version(), PROGRAM: program_digest()}
    for name in (*PACKAGES, "ray", *GRADERS):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def program_digest() -> str:
    """The first digits of a digest of all modules of this package: two checkouts of one version may differ."""
    root = Path(ablation.__file__).parent
    lines = [f"{path.relative_to(root).as_posix()}\0{sha256_file(path)}\n" for path in sorted(root.rglob("*.py"))]
    return sha256_bytes("".join(lines).encode())[:12]


def differing(own: dict[str, str | None], there: dict[str, str | None]) -> list[str]:
    """One text for each version that is another one there: `torch 2.12.0, here 2.13.0`."""
    return [
        f"{name} {there.get(name) or 'none'}, here {own.get(name) or 'none'}"
        for name in (*own, *(name for name in there if name not in own))
        if own.get(name) != there.get(name)
    ]
