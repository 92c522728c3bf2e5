"""What a shell completes: names out of the plan and the run that a command would choose. Quick, and silent whatever is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

MOST = 200
"""Completions of a shell."""


def _quietly(names: Callable[[typer.Context, str], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    """Completion never says what is wrong: there is just nothing to complete."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return [name for name in names(ctx, incomplete) if name.startswith(incomplete)][:MOST]
        except Exception:
            return []

    return complete


def _tree(ctx: typer.Context) -> dict[str, Any]:
    """The plan as it is written: reading it whole would take longer than a finger waits."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(_plan_file(ctx).read_bytes(), Loader=loader)


def _plan_file(ctx: typer.Context) -> Path:
    if ctx.params.get("plan"):
        return Path(ctx.params["plan"])
    if run := ctx.params.get("path") or ctx.params.get("run") or ctx.params.get("run_folder"):
        return Path(run) / "plan.yaml"
    from ablation.plan.choose import choose_plan

    return choose_plan(None)


def _root(ctx: typer.Context) -> Path:
    """The run folder, as `study.run_folder.chosen_root` has it."""
    if run := ctx.params.get("path") or ctx.params.get("run") or ctx.params.get("run_folder"):
        return Path(run)
    from ablation.study.chosen import VARIABLE, folder_of_backend

    path, tree = _plan_file(ctx).resolve(), _tree(ctx)
    folder = path.parent.parent if path.parent.name == "plans" else path.parent
    own = (tree.get("policy") or {}).get("backend", "local")
    backend = ctx.params.get("policy") or os.environ.get(VARIABLE) or None
    return folder_of_backend(folder / "runs" / str(tree["name"]), [own], backend)


@_quietly
def arms(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    return _tree(ctx)["arms"]


@_quietly
def families(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    return _tree(ctx)["families"]


@_quietly
def arms_of_run(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    return ["start", *_tree(ctx)["arms"]]


@_quietly
def sets(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Evaluation sets that the plan has."""
    keys = {"held-out": "held_out", "never-used": "never_used"}
    tree = _tree(ctx)
    verdict, release = tree.get("verdict") or {}, (tree.get("verdict") or {}).get("release") or {}
    found = [name for name, key in keys.items() if verdict.get(key)]
    found += ["selection"] if (tree.get("extension") or {}).get("selection") else []
    return [*found, *(name for name in ("main", "agent", "safety") if release.get(name))]


@_quietly
def subjects(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """`ARM@UPDATES` of every checkpoint of the run."""
    root = _root(ctx)
    found = {f"{path.parts[-3]}@{path.parts[-2].removeprefix('update-')}" for path in root.glob("*/*/update-*/checkpoint")}
    return sorted(found)


@_quietly
def trackers(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    return ("tensorboard", "wandb", "mlflow", "trackio")


@_quietly
def rollouts_of_run(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Stages, and within a stage that is typed out its rollouts."""
    root = _root(ctx)
    stages = sorted(
        path.parent.relative_to(root).as_posix().removeprefix("evaluations/")
        for pattern in ("*/*/*/stage.json", "evaluations/*/*/*/stage.json")
        for path in root.glob(pattern)
    )
    whole = next((stage for stage in stages if incomplete.startswith(f"{stage}/")), None)
    if whole is None:
        return [f"{stage}/" for stage in stages]
    import pyarrow.parquet as pq

    folder = root / whole if (root / whole).is_dir() else root / "evaluations" / whole
    names: list[str] = []
    for part in sorted(folder.glob("part-*.parquet")):
        rows = pq.read_table(part, columns=["problem", "effort", "index"]).to_pylist()
        names += [f"{whole}/{row['problem']}@{row['effort']}#{row['index']}" for row in rows]
    return names
