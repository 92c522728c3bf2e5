"""A weighting that somebody added by the instructions, step by step, in a copy of the program: what the audit of its run says."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.study.mini import ROOT, environment, mini_tree, write_plan

TEXT = (ROOT / "ablation" / "training" / "weightings" / "README.md").read_text()
FILE, ENTRY, TEST = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
FILES = re.findall(r"`((?:ablation|tests)/[\w/]+/(?:test_)?root\.py)`", TEXT)
LOOK = re.findall(r"^    ablation (.*?)(?: {2,}#.*)?$", TEXT[TEXT.index("## Looking at it") :], re.MULTILINE)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The program's folder after steps 1 to 3 of the instructions."""
    copy = tmp_path_factory.mktemp("program")
    for name in ("ablation", "tests/training"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "plans/quickstart.yaml", "tests/__init__.py"):
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    for path, text in zip(FILES, (FILE, TEST), strict=True):
        (copy / path).write_text(text)
    registry = copy / "ablation" / "plan" / "weightings.py"
    assert registry.read_text().count("WEIGHTINGS = {\n") == 1
    registry.write_text(registry.read_text().replace("WEIGHTINGS = {\n", "WEIGHTINGS = {\n" + ENTRY))
    return copy


def call(copy, *arguments):
    command = [sys.executable, "-P", "-m", *arguments]
    more = {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=environment() | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
def test_a_weighting_that_was_added_by_the_instructions_is_left_out_of_the_audit_by_name(copy):
    assert FILES == ["ablation/training/weightings/root.py", "tests/training/weightings/test_root.py"]
    call(copy, "pytest", "-q", "-p", "no:cacheprovider", FILES[1])
    new, check, show = LOOK
    call(copy, "ablation", *new.split())
    path = copy / "plans" / "root-study.yaml"
    path.write_text(path.read_text().replace("\n\nfamilies:", "\n  R: {weighting: root}\n\nfamilies:"))
    call(copy, "ablation", *check.split())
    assert "sqrt(L_i × max_tokens)" in call(copy, "ablation", *show.split())
    path.unlink()  # the same in a run that takes seconds
    tree = mini_tree()
    write_plan(copy, tree | {"arms": {"C": tree["arms"]["C"], "R": {"weighting": "root"}}})
    call(copy, "ablation", "plan", "lock", "plans/mini.yaml")
    call(copy, "ablation", "run", "--all")
    call(copy, "ablation", "audit", "weights", "--recompute")
    said = call(copy, "ablation", "audit")
    assert "  - left out: weights of `root`, no second path\n" in said and said.splitlines()[-1].startswith("AGREES: ")
