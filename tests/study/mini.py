"""A study small enough to run many times: the real model and engine, few cells, short rollouts."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def mini_tree() -> dict:
    """The quickstart plan with two arms, eight cells, two updates and a short cap; limits scaled to 24 rollouts."""
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    cells = {effort: ids[:count] for (effort, ids), count in zip(tree["problems"]["cells"].items(), (3, 3, 2), strict=True)}
    tree |= {"name": "mini", "arms": {name: tree["arms"][name] for name in ("C", "XK")}}
    tree["problems"]["cells"] = cells
    tree["sampling"] |= {"max_tokens": 96, "batch_rollouts": 9}
    tree["training"] |= {"updates": 2, "rollouts_per_cell": 3, "s0": 30.0}
    tree["stop_rules"] = [rule for rule in tree["stop_rules"] if rule["name"] == "not_finite"]
    limits = {"clean_lost": -2, "unfinished_gained": 2, "looping_gained": 2, "logprob_lost": -0.15}
    for rule in tree["verdict"]["damage"]:
        rule["limit"] = limits[rule["name"]]
    tree["statistics"]["min_clusters"] = 5
    return tree


def write_plan(folder: Path, tree: dict) -> Path:
    """`folder`/plans/NAME.yaml, written but not locked."""
    path = folder / "plans" / f"{tree['name']}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


def ablation(folder: Path, *arguments: str, more: dict[str, str] | None = None, **options) -> subprocess.CompletedProcess:
    """Run the command line in `folder`, as a user would; `more` is added to the environment."""
    return subprocess.run(
        command(*arguments), cwd=folder, capture_output=True, text=True, env=environment() | (more or {}), check=False, **options
    )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ablation", *arguments]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "80"}


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run but the journal and the lock of the runner: what must not depend on when it was killed."""
    left_out = ("journal.jsonl", ".runner", "verdict.json")
    return {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and not path.name.startswith(left_out)
    }
