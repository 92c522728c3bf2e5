"""What a lock records about its surroundings: rule engine, packages, git, author."""

from __future__ import annotations

import getpass
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import ablation
from ablation.files import sha256_bytes, sha256_file

ENGINE = ("rollouts", "measures", "verdict", "training", "problems")
"""The packages whose code decides what a rollout counts as, what it weighs and what a label is."""
PACKAGES = (
    "ablation",
    "numpy",
    "peft",
    "pyarrow",
    "pydantic",
    "PyYAML",
    "rfc8785",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
)


def engine_files() -> dict[str, Any]:
    """`sha256` over, and `files`: path below the package -> digest of, the source of the rule engine."""
    root = Path(ablation.__file__).parent
    paths = sorted(path for name in ENGINE for path in (root / name).rglob("*.py"))
    files = {path.relative_to(root).as_posix(): sha256_file(path) for path in paths}
    return {"sha256": sha256_bytes("".join(f"{name}\0{digest}\n" for name, digest in files.items()).encode()), "files": files}


def package_versions() -> dict[str, str | None]:
    """Version of Python and of every package that can move a number; null where one is not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = ablation.__version__ if name == "ablation" else None
    return versions


def git_state(plan_path: Path) -> dict[str, Any] | None:
    """Commit of the repository that holds the plan and whether tracked files differ from it; null without git."""
    commit = _git(plan_path, "rev-parse", "HEAD")
    if not commit:
        return None
    return {"commit": commit, "dirty": bool(_git(plan_path, "status", "--porcelain", "--untracked-files=no"))}


def whoami(plan_path: Path) -> str:
    """`NAME <EMAIL>` as git knows it, else the user's name."""
    name, email = _git(plan_path, "config", "user.name"), _git(plan_path, "config", "user.email")
    if name:
        return f"{name} <{email}>" if email else name
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        return "unknown"


def _git(plan_path: Path, *arguments: str) -> str:
    """Output of one git command in the plan's folder; empty if there is no git or it fails."""
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=Path(plan_path).resolve().parent, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
