"""Whether the tests notice a fault: `python -m tests.mutants [PART OF A FILE'S NAME ...]`, or `make mutants`.

Each fault of `faults.yaml` is put by itself into a copy of the tree, and the tests of its package run there until one fails.
Exit code 1 if one was not noticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SECONDS = 900
"""Tests that take longer have met a fault that never ends."""


def load(parts: list[str]) -> list[dict]:
    """The faults of files whose name holds one of `parts`. Raises `SystemExit` for a fault that does not fit its file."""
    faults = yaml.safe_load((Path(__file__).parent / "faults.yaml").read_text())
    for one in faults:
        if (count := (ROOT / one["file"]).read_text().count(one["find"])) != 1:
            raise SystemExit(f"{one['file']}: the text of `{one['fault']}` is there {count} times: {one['find']}")
    return [one for one in faults if not parts or any(part in one["file"] for part in parts)]


def tests_of(fault: dict) -> str:
    """A folder or file: that which the fault names, or its package's."""
    return fault.get("tests") or "tests/" + fault["file"].split("/")[1]


def copy_tree(into: Path) -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, into / name)


def is_noticed(fault: dict, tree: Path) -> bool:
    """Whether the tests fail with `fault` in `tree`, which is as it was afterwards."""
    path = tree / fault["file"]
    text = path.read_text()
    path.write_text(text.replace(fault["find"], str(fault["replace"])))
    command = [sys.executable, "-m", "pytest", "-x", "-m", "not slow and not alone", "-p", "no:cacheprovider", tests_of(fault)]
    try:
        done = subprocess.run(
            command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, timeout=SECONDS, check=False
        )
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(command)}\n{done.stdout.decode()}")
        return done.returncode == 1
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text)


def main() -> None:
    faults = load(sys.argv[1:])
    missed = []
    with tempfile.TemporaryDirectory(prefix="ablation-mutants-") as folder:
        copy_tree(Path(folder))
        for one in faults:
            began = time.monotonic()
            noticed = is_noticed(one, Path(folder))
            missed += [] if noticed else [one]
            word = "noticed" if noticed else "NOT NOTICED"
            print(f"{word:11} {time.monotonic() - began:5.0f} s  {one['file']}: {one['fault']}", flush=True)
    print(f"{len(faults) - len(missed)} of {len(faults)} faults noticed")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
