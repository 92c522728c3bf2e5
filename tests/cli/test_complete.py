"""Shell completion as bash, zsh and fish ask for it: names of the plan and the run, at once, and silent where there is none."""

import os
import subprocess
import sys
import time

import pytest

from tests.rollouts.test_address import RECORD
from tests.study.mini import ROOT, environment


def completions(line: str, cwd=ROOT) -> list[str]:
    """What bash is offered for the last word of `line`, which may be empty."""
    words = line.split(" ")
    asked = {"_ABLATION_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    script = "import sys; sys.argv[0] = 'ablation'; from ablation.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=cwd, env=environment() | asked, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout.split()


RUN = f"--run {RECORD}"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ablation stat", ["status"]),
        ("ablation run --plan plans/quickstart.yaml --arm X", ["X", "XP", "XK"]),
        ("ablation run --plan plans/quickstart.yaml --family ", ["main", "replication"]),
        ("ablation run --track w", ["wandb"]),
        ("ablation evaluate --plan plans/phase2.yaml h", ["held-out"]),
        ("ablation evaluate --plan plans/phase2.yaml ", ["held-out", "never-used", "selection", "main"]),
        (f"ablation show {RUN} main/N/update-4", ["main/N/update-4/"]),
        (f"ablation show {RUN} main/N/readout/chain_sum-1@xhigh#", [f"main/N/readout/chain_sum-1@xhigh#{k}" for k in range(4)]),
        (f"ablation show {RUN} main/N/readout/chain_sum-1@xhigh#1 --beside ", ["start", "C", "N"]),
    ],
)
def test_names_of_the_plan_and_the_run(line, found):
    assert completions(line) == found


@pytest.mark.parametrize(
    "line", ["ablation run --arm ", "ablation show --run /no/such/folder ", "ablation run --plan README.md --arm "]
)
def test_where_there_is_nothing_to_complete_nothing_is_said(line, tmp_path):
    assert completions(line, cwd=tmp_path) == []


def test_subjects_are_checkpoints(tmp_path):
    (tmp_path / "runs/x/main/N/update-3/checkpoint").mkdir(parents=True)
    (tmp_path / "runs/x/plan.yaml").write_text("name: x\n")
    assert completions("ablation evaluate held-out --run runs/x --subject N", cwd=tmp_path) == ["N@3"]


def test_it_is_quick_and_loads_no_torch():
    script = (
        "import sys; sys.argv[0] = 'ablation'; from ablation.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([n for n in ('torch', 'numpy', 'pyarrow', 'rich', 'ablation.plan.model') if n in sys.modules], file=sys.stderr)"
    )
    line = "ablation run --plan plans/quickstart.yaml --arm "
    asked = {"_ABLATION_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "5"}
    best = 9.0
    for _ in range(3):
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env=environment() | asked, capture_output=True, text=True, check=False
        )
        best = min(best, time.monotonic() - started)
    assert done.stderr.strip() == "[]"
    assert best < 5, best  # well below one on a quiet machine


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell):
    done = subprocess.run(
        [sys.executable, "-m", "ablation", "--show-completion", shell],
        cwd=ROOT,
        env=environment() | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ABLATION" in done.stdout.upper() and shell in done.stdout + os.environ.get("SHELL", "") + shell
