"""Which plan a command means when `--plan` is left out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablation.errors import UsageError


def lock_path(plan_path: Path) -> Path:
    """`plans/NAME.yaml` -> `plans/NAME.lock`. Raises `UsageError` if `plan_path` is itself named like a lock."""
    path = Path(plan_path)
    if path.suffix == ".lock":
        raise UsageError(f"{path}: is the name of a lock, not of a plan", hint=f"Name the plan: {path.with_suffix('.yaml')}.")
    return path.with_suffix(".lock")


def choose_plan(option: Path | None, folder: Path = Path("plans")) -> Path:
    """`option`, or the only locked plan in `folder`; otherwise a `UsageError` that lists the candidates."""
    if option is not None:
        if Path(option).is_dir():
            raise UsageError(f"{option}: is a folder; --plan names one plan file in it")
        return Path(option)
    plans = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    locked = [path for path in plans if lock_path(path).exists()]
    if len(locked) == 1:
        return locked[0]
    if locked:
        raise UsageError(f"{len(locked)} plans are locked: {', '.join(map(str, locked))}", hint="Say which one with --plan PLAN.")
    if plans:
        raise UsageError(
            f"no plan in {folder}/ is locked; there are: {', '.join(map(str, plans))}",
            hint="Lock one with `ablation plan lock PLAN`, or say which one with --plan PLAN.",
        )
    above = next((one for one in Path.cwd().parents if any((one / folder).glob("*.yaml"))), None)
    if above is not None:
        hint = f"Go there: cd {shlex.quote(str(above))}"
        raise UsageError(f"there is no plan in {folder}/, but in {above / folder}", hint=hint)
    raise UsageError(f"there is no plan in {folder}/", hint="Start one with `ablation plan new NAME`, or name it with --plan.")


def command_options(path: Path, run_folder: Path | None = None, policy: str | None = None, folder: Path = Path("plans")) -> str:
    """` --plan PATH --run FOLDER --policy BACKEND` for a printed command: each only where it would not find it by itself."""
    try:
        alone = choose_plan(None, folder).resolve() == Path(path).resolve()
    except UsageError:
        alone = False
    return named_options(None if alone else path, run_folder, policy)


def named_options(plan: Path | None, run: Path | None, policy: str | None) -> str:
    """Those that are not None, for a printed command."""
    named = {"--plan": plan, "--run": run, "--policy": policy}
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in named.items() if value is not None)


def machine_options(record: Mapping[str, Any]) -> str:
    """Options for a printed command that samples or trains as one did whose journal has `record` of its machine.

    Each only where it is not the default. A service's record has no `turns`: it has none of these options.
    """
    if "turns" not in record:
        return ""
    server, turns, processes = record.get("server"), record["turns"], record.get("processes", 1)
    named = {
        "--server": server,
        "--server-folder": record.get("server_folder"),
        "--turns": None if turns == "auto" or server is not None else turns,
        "--processes": None if processes == 1 else processes,
    }
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in named.items() if value is not None)
