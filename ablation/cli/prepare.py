"""`ablation prepare PLAN`: make what the plan names as `recipe:...` and this machine does not have yet."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ablation.plan.load import LoadedPlan


def prepare(
    file: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file, for instance plans/smollm2.yaml.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else goes to stderr.")] = False,
) -> None:
    """Make every `recipe:` file of a plan that is not in the cache yet. Run again, it only checks what is there."""
    from ablation.plan.load import load_plan
    from ablation.plan.locate import cache_folder, resources_of
    from ablation.recipes.recipe import make_parts, parts_of

    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # the recipes report in lines of their own
    loaded = load_plan(file)
    places = {name: resource for name, resource in resources_of(loaded.plan).items() if resource.at.startswith("recipe:")}
    made = {}
    for recipe, wanted in _wanted(loaded, places).items():
        folder = cache_folder() / "recipes" / recipe
        for part, result in make_parts(folder, parts_of(recipe), wanted, _say).items():
            made[f"recipe:{recipe}/{part}"] = result
            _say(f"{part}: {'made' if result.fresh else 'there already'}, digest {result.sha256}")
    locked = _locked_digests(file)
    differing = [name for name, place in places.items() if locked.get(name) not in (None, made[place.at].sha256)]
    for name in differing:
        _say(
            f"warning: {name} is not the one that {file} was locked with ({locked[name][:16]}...): training does not end "
            "in the same bits on every machine. A run of this plan will be refused; put the locked files there, or lock a copy "
            "of the plan under another name."
        )
    if as_json:
        resources = {
            name: {"at": place.at, "path": str(result.path), "sha256": result.sha256, "made": result.fresh}
            for name, place in places.items()
            for result in [made[place.at]]
        }
        typer.echo(json.dumps({"plan": str(file), "resources": resources, "not_as_locked": differing}, indent=2))
    elif not places:
        typer.echo(f"{file}: names no `recipe:`, so there is nothing to make")
    else:
        fresh = sum(result.fresh for result in made.values())
        typer.echo(f"{file}: ready ({fresh} made, {len(made) - fresh} there already)")


def _wanted(loaded: LoadedPlan, places: dict) -> dict[str, dict[str, str | None]]:
    """Recipe -> part -> digest that the plan says, or None. A recipe or part that does not exist is an error in the plan."""
    from ablation.errors import UsageError
    from ablation.recipes.recipe import find_part

    wanted: dict[str, dict[str, str | None]] = {}
    faults = []
    for name, resource in places.items():
        place = (*name.split("."), "at")
        try:
            recipe, part = find_part(resource.at.removeprefix("recipe:"))
        except UsageError as error:
            faults.append((place, error.message))
            continue
        parts = wanted.setdefault(recipe, {})
        if None not in (parts.get(part), resource.sha256) and parts[part] != resource.sha256:
            faults.append((place, f"`{resource.at}` is named with two digests"))
        parts[part] = resource.sha256 or parts.get(part)
    loaded.refuse(faults)
    return wanted


def _locked_digests(file: Path) -> dict[str, str]:
    """Field path -> digest in the plan's lock; empty if the plan is not locked."""
    from ablation.plan.choose import lock_path

    if not lock_path(file).exists():
        return {}
    from ablation.plan.lock import read_lock

    return {name: entry["sha256"] for name, entry in read_lock(file).resources.items() if entry.get("sha256")}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
