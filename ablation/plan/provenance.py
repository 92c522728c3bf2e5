"""What a lock records about its surroundings: engine, packages, git, author."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import ablation
from ablation.files import sha256_bytes, sha256_file
from ablation.plan.proofs import run_tool
from ablation.plan.repository import GitError, opened

SHOWS = frozenset({"__main__.py", "audit", "cli", "merge", "recipes", "report", "trackers", "view"})
"""What reads options, shows, checks a second time or comes after. All other source is the engine: it decides what is sampled,
trained, scheduled, read blind and judged."""
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
    """`sha256` over, and `files`: path below the package -> digest of, the source of the engine."""
    root = Path(ablation.__file__).parent
    named = {path.relative_to(root).as_posix(): path for pattern in ("*.py", "*_library.yaml") for path in root.rglob(pattern)}
    files = {name: sha256_file(path) for name, path in sorted(named.items()) if name.partition("/")[0] not in SHOWS}
    return {"sha256": sha256_bytes("".join(f"{name}\0{digest}\n" for name, digest in files.items()).encode()), "files": files}


def engine_changes(then: Mapping[str, str]) -> list[str]:
    """What is to be said of the engine's source, which was `then` when the plan was locked.

    An earlier version of this program listed some packages alone: of the others nothing is known.
    """
    now = engine_files()["files"]
    listed = {name.partition("/")[0] for name in then}
    known = {name for name in now if name.partition("/")[0] in listed}
    unknown = sorted({name.partition("/")[0] for name in now} - listed)
    changed = sorted(name for name in known | then.keys() if now.get(name) != then.get(name))
    said = [f"the engine's source differs from the time of locking: {shortlist(changed)}"] if changed else []
    if unknown:
        said.append(f"whether these differ is not known, as the lock does not list them: {', '.join(unknown)}")
    return said


def shortlist(names: Sequence[str]) -> str:
    """The first three, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


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
    try:
        with opened(Path(plan_path).parent) as repository:
            commit = repository.git("rev-parse", "--verify", "--quiet", "HEAD")
            return {"commit": commit.strip(), "dirty": repository.changed()} if commit else None
    except GitError:
        return None


def whoami(plan_path: Path) -> str:
    """`NAME <EMAIL>` as git knows it, else the user's name."""
    name, email = _setting(plan_path, "user.name"), _setting(plan_path, "user.email")
    if name:
        return f"{name} <{email}>" if email else name
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        return "unknown"


def _setting(plan_path: Path, name: str) -> str:
    """One setting of git in the plan's folder; empty if there is none. Asked like this, git starts no other program."""
    folder = Path(plan_path).resolve().parent
    code, out, _ = run_tool("git", "-C", folder, "--no-pager", "config", "--get", name, cwd=Path("/"), timeout=30)
    return out.strip() if code == 0 else ""
