"""Making the parts of a recipe: each one once, in the order of what it needs, complete or not at all."""

from __future__ import annotations

import fcntl
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ablation.errors import IntegrityError, UsageError
from ablation.files import disk_errors, folder_is_complete, remove_partial, sha256_path, write_folder, write_with
from ablation.plan.section import did_you_mean
from ablation.recipes import RECIPES

Say = Callable[[str], None]
"""Takes one line on how the work goes."""


@dataclass(frozen=True)
class Part:
    """One file or folder that a recipe makes."""

    kind: Literal["file", "folder"]
    make: Callable[[Path, Path, Say], None]
    """(where to write, the folder with the recipe's finished parts, progress). A folder is there already and is empty."""
    needs: tuple[str, ...] = ()
    """Parts that must be there first."""


@dataclass(frozen=True)
class Made:
    """A part that is in the cache."""

    path: Path
    sha256: str
    fresh: bool
    """True if it was made just now."""


def find_part(name: str) -> tuple[str, str]:
    """`smollm2/base` -> (`smollm2`, `base`). Raises `UsageError` if there is no such recipe or part."""
    recipe, _, part = name.partition("/")
    if recipe not in RECIPES:
        raise UsageError(f"there is no recipe `{recipe}`; there are: {', '.join(RECIPES)}{did_you_mean(recipe, RECIPES)}")
    parts = parts_of(recipe)
    if part not in parts:
        raise UsageError(f"recipe `{recipe}` makes no `{part}`; it makes: {', '.join(parts)}{did_you_mean(part, parts)}")
    return recipe, part


def parts_of(recipe: str) -> dict[str, Part]:
    """The parts of a recipe, those that others need first."""
    return importlib.import_module(RECIPES[recipe]).PARTS


def is_made(path: Path, part: Part) -> bool:
    """True if `path` has the part complete: a file is renamed into place, a folder carries a marker with every digest."""
    return path.is_file() if part.kind == "file" else folder_is_complete(path)


def make_parts(folder: Path, parts: dict[str, Part], wanted: dict[str, str | None], say: Say) -> dict[str, Made]:
    """Make each wanted part that is not in `folder` yet, and what it needs. `wanted`: part -> digest it must have, or None.

    Raises:
        IntegrityError: a part has another digest than wanted. One that was just made is thrown away; one that was there stays.
        UsageError: another process is making parts in this folder.
    """
    with only_one(folder):
        remove_partial(folder)
        return {name: _one(folder, parts, name, sha256, say) for name, sha256 in wanted.items()}


def _one(folder: Path, parts: dict[str, Part], name: str, wanted: str | None, say: Say) -> Made:
    part, path = parts[name], folder / name
    if is_made(path, part):
        found = sha256_path(path)
        if wanted not in (None, found):
            raise IntegrityError(
                f"{path}: has the digest {found}, but the plan says {wanted}",
                hint="Another version of the recipe made it. Move it away and run the same command again.",
            )
        return Made(path, found, fresh=False)
    for needed in part.needs:
        if not is_made(folder / needed, parts[needed]):
            _one(folder, parts, needed, None, say)
    say(f"{name}: making {path}")

    def make(temporary: Path) -> None:
        part.make(temporary, folder, lambda line: say(f"{name}: {line}"))
        found = sha256_path(temporary)
        if wanted not in (None, found):
            raise IntegrityError(
                f"{name}: was made with the digest {found}, but the plan says {wanted}; it was not kept",
                hint="Install the package versions that the plan was written with, or name this digest in a new plan.",
            )

    (write_with if part.kind == "file" else write_folder)(path, make)
    return Made(path, sha256_path(path), fresh=True)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the kernel's lock on `folder`, which is free again the moment its holder is gone."""
    path = folder / ".making"
    with disk_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        handle = open(path, "ab")  # noqa: SIM115 - closed below
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{folder}: another `ablation prepare` is at work here", hint="Wait until it has finished."
            ) from None
        yield
