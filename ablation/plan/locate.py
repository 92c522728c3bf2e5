"""Where the files that a plan names are, and whether they are the ones that it means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

import ablation
from ablation.errors import UsageError
from ablation.files import sha256_path
from ablation.plan.model import Plan
from ablation.plan.resources import Resource

SCHEMES = ("package:", "recipe:", "hub:")


class HasPlan(Protocol):
    """A loaded or a locked plan."""

    plan: Plan
    path: Path


def cache_folder() -> Path:
    """Where recipes keep what they made: `$ABLATION_CACHE`, or `~/.cache/ablation`."""
    return Path(os.environ.get("ABLATION_CACHE") or Path.home() / ".cache" / "ablation")


def hub_folder() -> Path:
    """Where the model hub's client keeps its snapshots."""
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"])
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface") / "hub"


def locate(resource: Resource, plan_path: Path) -> Path:
    """The path where `resource` is or would be; it need not exist. Raises `UsageError` for a pipe or a device: a plan of somebody
    else must not wait for what is written to it, or for what is typed here."""
    path = _place(resource, plan_path)
    if os.path.exists(path) and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path}: is no file and no folder, and a plan names nothing else")
    return path


def _place(resource: Resource, plan_path: Path) -> Path:
    scheme, _, rest = resource.at.partition(":")
    if scheme == "package":
        return Path(ablation.__file__).parent / "assets" / rest
    if scheme == "recipe":
        return cache_folder() / "recipes" / rest
    if scheme == "hub":
        name, _, revision = rest.partition("@")
        return hub_folder() / f"models--{name.replace('/', '--')}" / "snapshots" / revision
    return Path(plan_path).parent / resource.at


def find_place(at: str) -> Path:
    """The path of what a plan may write as `at`; a relative path is one from here.

    Raises `UsageError` if it is not written as a place must be, or nothing is there.
    """
    try:
        resource = Resource(at=at, owed="looked for by hand")
    except ValidationError as error:
        said = "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
        raise UsageError(f"not a place: {said}") from None
    path = locate(resource, Path("plan.yaml"))
    if os.path.exists(path):
        return path
    if at.startswith("package:"):  # by hand it is more likely a wrong name than a broken installation
        raise UsageError(f"`{at}`: there is no such file or folder: {path}")
    if at.startswith(SCHEMES):
        raise UsageError(f"`{at}` is not at {path}: {_remedy(resource, Path('PLAN'))}")
    raise UsageError(f"{path}: there is no such file or folder")


def resources_of(plan: Plan) -> dict[str, Resource]:
    """Field path -> resource, for every resource that the plan names."""

    def walk(value: Any, path: str) -> Iterator[tuple[str, Resource]]:
        if isinstance(value, Resource):
            yield path, value
        elif isinstance(value, BaseModel):
            for name in type(value).model_fields:
                yield from walk(getattr(value, name), f"{path}.{name}" if path else name)
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from walk(inner, f"{path}.{name}")
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield from walk(inner, f"{path}[{index}]")

    return dict(walk(plan, ""))


def resource_path(name: str) -> tuple[str | int, ...]:
    """`arms.E.external.files[0]` -> `("arms", "E", "external", "files", 0)`, the path of its place in the plan."""
    parts: list[str | int] = []
    for part in name.split("."):
        field, _, index = part.partition("[")
        parts += [field, int(index.rstrip("]"))] if index else [field]
    return tuple(parts)


def missing_resources(loaded: HasPlan) -> list[str]:
    """One line for each resource that is owed or not at hand, saying what to do; empty if all are there."""
    lines = []
    for name, resource in resources_of(loaded.plan).items():
        path = locate(resource, loaded.path)
        if resource.owed is not None:
            lines.append(f"{name}: owed: {resource.owed} (expected at {path}; put it there and name its sha256 in a new plan)")
        elif not os.path.exists(path):
            lines.append(f"{name}: `{resource.at}` is not at {path}: {_remedy(resource, loaded.path)}")
    return lines


def way_out(resource: Resource, path: Path, plan_path: Path) -> str:
    """What to add to the message that `path` has another digest than the plan says; nothing where we do not know the cause."""
    if not resource.at.startswith("recipe:"):
        return ""
    return f": another version of the recipe made it; remove {path}, then: ablation prepare {plan_path}"


def _remedy(resource: Resource, plan_path: Path) -> str:
    if resource.at.startswith("recipe:"):
        return f"make it with `ablation prepare {plan_path}`"
    if resource.at.startswith("hub:"):
        name, _, revision = resource.at.removeprefix("hub:").partition("@")
        return f"get it with `hf download {name} --revision {revision}`"
    if resource.at.startswith("package:"):
        return "the installation is incomplete; install the package again"
    return "put the file there"


def resource_digests(loaded: HasPlan) -> dict[str, dict[str, str | None]]:
    """Field path -> place, digest (null if not at hand or only pinned by a hub revision) and, if it is owed, why.

    Raises `UsageError` when a file is missing that is neither owed nor on a hub, or has another digest than the plan says.
    """
    result: dict[str, dict[str, str | None]] = {}
    problems = []
    for name, resource in resources_of(loaded.plan).items():
        path = locate(resource, loaded.path)
        digest = sha256_path(path) if resource.owed is None and os.path.exists(path) else None
        if resource.owed is None and digest is None and not resource.at.startswith("hub:"):
            problems.append(f"{name}: `{resource.at}` is not at {path}: {_remedy(resource, loaded.path)}")
        elif digest is not None and resource.sha256 not in (None, digest):
            text = f"{name}: {path} has the digest {digest}, but the plan says {resource.sha256}"
            problems.append(text + way_out(resource, path, loaded.path))
        result[name] = {"at": resource.at, "sha256": digest or resource.sha256, "owed": resource.owed}
    if problems:
        raise UsageError("\n".join(f"{loaded.path}: {problem}" for problem in problems))
    return result


def changed_resources(loaded: HasPlan, lock) -> list[str]:
    """One line for each resource whose digest is not the locked one; what is not at hand is not looked at."""
    lines = []
    for name, resource in resources_of(loaded.plan).items():
        path = locate(resource, loaded.path)
        locked = lock.resources.get(name, {}).get("sha256") or resource.sha256
        if locked is not None and os.path.exists(path):
            digest = sha256_path(path)
            if digest != locked:
                lines.append(f"{path}: {name} has changed since {loaded.path} was locked: {locked[:16]}... -> {digest[:16]}...")
    return lines
